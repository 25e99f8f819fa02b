// Lanes of a program: queues of operators that run beside each other, with events between them (NanoFlow, OSDI'25).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "operator.h"
#include "receivers.h"
#include "signal.h"

namespace treadle {

constexpr int kNumLanes = 4;

// So many operators of another lane end before an operator begins.
struct LaneWait {
  int lane;
  int num_ended;
};

// An operator in its lane, with the part of the threads that it is meant to have.
struct LaneTurn {
  std::unique_ptr<Operator> one;
  float device_part;
  std::vector<LaneWait> waits;
};

using LaneQueues = std::array<std::vector<LaneTurn>, kNumLanes>;

// Threads in the lanes of one step. Each thread takes tasks where most threads are missing, as parts say, and helps
// elsewhere where nothing is missing: so no thread is idle while any lane has a task that may run. An operator that
// waits for another device is asked whenever a thread looks for work; when none has any, one of them waits for it, and
// looks for what others wait for here, as `Team` does.
class LaneRun {
 public:
  LaneRun(int num_threads, Receivers& receivers) : num_threads_(num_threads), receivers_(receivers) {}

  // By one thread, before all others.
  void begin(const LaneQueues& queues, const Step& step);
  // By every thread; returns when every lane is at its end.
  void work(Scratch& scratch);
  // By one thread, behind all others: what others' tasks took of the team's time.
  std::chrono::nanoseconds take_served();
  // Likewise, what a thread that had no work has waited for other devices.
  std::chrono::nanoseconds take_waited();

  // How long a wait for another device keeps its thread awake, and how long it sleeps then before it looks for what
  // others wait for here: so two devices that wait for each other serve each other.
  static constexpr std::chrono::microseconds kAwakeWaiting{200};
  static constexpr std::chrono::microseconds kAsleepWaiting{100};
  // While no step runs: when each operator of a lane began and ended in the last one, in seconds from its first.
  std::vector<std::pair<double, double>> times(int lane) const;

 private:
  using Clock = std::chrono::steady_clock;

  // How far an operator is. One without tasks has an empty one, so that a thread ends it.
  struct Turn {
    int num_tasks = 0;
    int num_wanted = 0;  // threads
    std::atomic<int> next_task{0};
    std::atomic<int> num_done{0};
    std::atomic<bool> may_begin{true};  // as far as other devices go
    Clock::time_point begin, end;  // set by the thread with its first task, and by the one that ends it
  };
  struct alignas(64) Lane {
    std::unique_ptr<Turn[]> turns;
    std::size_t room = 0;
    std::atomic<int> place{0};
    std::atomic<int> num_workers{0};
  };
  static constexpr int kNoLane = -1;

  int neediest();
  bool is_ready(int lane, int place) const;
  bool may_begin(int lane, int place);
  Turn* waiting(const Operator*& next);
  void wait(std::uint32_t seen, Scratch& scratch);
  void work_in(int lane, Scratch& scratch);
  void end(int lane, int place, Scratch& scratch);
  void serve(Scratch& scratch);

  const int num_threads_;
  Receivers& receivers_;
  const LaneQueues* queues_ = nullptr;
  const Step* step_ = nullptr;
  Clock::time_point begin_;
  std::array<Lane, kNumLanes> lanes_;
  std::atomic<int> num_open_{0};  // lanes that are not at their end
  std::chrono::nanoseconds served_{};  // by the thread that holds the receivers
  std::atomic<bool> is_asking_{false};  // whether an operator may begin: one thread at a time, with the next
  std::chrono::nanoseconds waited_{};
  Signal moved_;                  // when an operator ends
};

}  // namespace treadle
