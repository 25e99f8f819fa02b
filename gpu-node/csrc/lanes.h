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
// elsewhere where nothing is missing: so nobody is idle while any lane has a task that may run.
class LaneRun {
 public:
  LaneRun(int num_threads, Receivers& receivers) : num_threads_(num_threads), receivers_(receivers) {}

  // By one thread, before all others.
  void begin(const LaneQueues& queues, const Step& step);
  // By every thread; returns when every lane is at its end.
  void work(Scratch& scratch);
  // By one thread, behind all others: what others' tasks took of the team's time.
  std::chrono::nanoseconds take_served();
  // While no step runs: when each operator of a lane began and ended in the last one, in seconds from its first.
  std::vector<std::pair<double, double>> times(int lane) const;

 private:
  using Clock = std::chrono::steady_clock;

  // How far an operator is. One without tasks has an empty one, so that somebody sees to its end.
  struct Turn {
    int num_tasks = 0;
    int num_wanted = 0;  // threads
    std::atomic<int> next_task{0};
    std::atomic<int> num_done{0};
    Clock::time_point begin, end;  // by whoever has its first task, and by whoever ends it
  };
  struct alignas(64) Lane {
    std::unique_ptr<Turn[]> turns;
    std::size_t room = 0;
    std::atomic<int> place{0};
    std::atomic<int> num_workers{0};
  };
  static constexpr int kNoLane = -1;

  int neediest() const;
  bool is_ready(int lane, int place) const;
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
  std::chrono::nanoseconds served_{};  // by whoever holds the receivers
  Signal moved_;                  // when an operator ends
};

}  // namespace treadle
