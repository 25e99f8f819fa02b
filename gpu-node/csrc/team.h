// Threads that run a program together: each operator's tasks are taken by threads that are free, and none begins the
// next operator before all tasks of this one are done. Where a step goes through lanes, threads divide among these.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "lanes.h"
#include "operator.h"
#include "program.h"
#include "receivers.h"
#include "signal.h"

namespace treadle {

// Time within steps that was not the steps' own work.
struct OffloadTimes {
  std::chrono::nanoseconds served{};  // others' tasks
  std::chrono::nanoseconds waited{};  // for other devices' answers, with what was served meanwhile left out
};

class Team {
 public:
  // The caller of `run` is the first thread of the team; `cpus` is empty, or says where each thread stays. What
  // `receivers` hear of is served behind operators that are polled, and while an operator waits.
  Team(int num_threads, std::vector<int> cpus, Receivers& receivers);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(const Program& program, const Step& step);
  // Between programs: serves what waits now; whether anything did.
  bool serve_others();
  // Since the last call.
  OffloadTimes take_times();

  const LaneRun& lanes() const { return lanes_; }

  void pin(int member) const;

 private:
  using Clock = std::chrono::steady_clock;

  void serve(int member);
  void work(int member);
  void work_program(int member);
  void work_operator(const Operator& current, int member);
  void work_list(int member);
  // A task of `mover` is one more of the operator's.
  void work_beside(const Operator& current, const Operator& mover, int layer, int member);
  void work_others(int member);
  void begin_to_serve();
  void await(const Operator& next, const Step& step);
  void clock(const Operator& current, bool is_last);
  // `last` is done by the thread that comes last, while all others wait.
  template <typename Last>
  void meet(const Last& last);

  std::vector<int> cpus_;
  int num_threads_;
  std::vector<Scratch> scratch_;  // one a thread
  const Program* program_ = nullptr;
  const Step* step_ = nullptr;
  Receivers& receivers_;
  LaneRun lanes_;
  bool moves_beside_ = false;
  bool serves_ = false;  // changed at meetings alone, as is the next
  bool is_ready_ = false;
  OffloadTimes times_;
  Clock::time_point serves_since_;
  Clock::time_point works_since_;  // of an operator's own time, with the next
  std::chrono::nanoseconds worked_{};
  bool ends_ = false;
  Signal start_, met_;
  alignas(64) std::atomic<int> next_task_{0};
  alignas(64) std::atomic<int> num_waiting_{0};
  std::vector<std::thread> helpers_;  // last: they use all of the above
};

}  // namespace treadle
