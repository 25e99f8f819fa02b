// A device: a queue of steps, and the threads that run them one after another. Submitting never waits for a step.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "futex.h"
#include "program.h"
#include "receivers.h"
#include "team.h"

namespace treadle {

// When a step ran.
struct StepTimes {
  double run_s;   // from its first operator to its last
  double idle_s;  // from the end of the step before it to its beginning; 0 for the first
  double served_s;  // of `run_s`, what went to others' tasks
  double waited_s;  // of `run_s`, what went to waiting for other devices
};

class Device {
 public:
  Device(int num_threads, std::vector<int> cpus);
  ~Device();  // what is in the queue is done first
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The event of the step: events are numbered from 1 on, and happen in their order.
  std::uint64_t submit(const Program& program, Step step);
  bool is_done(std::uint64_t event) const;
  void wait(std::uint64_t event) const;
  void drain() const;
  // Of a step that is done and not `kNumTimes` steps old.
  StepTimes times(std::uint64_t event) const;

  // Of the last step that went through lanes, when the device has nothing to do (see LaneRun::times).
  std::vector<std::pair<double, double>> lane_times(int lane) const;

  static constexpr std::uint64_t kNumTimes = 64;

  // What others ask for through a link is served behind polled operators, and while there is no step.
  void attach(LinkReceiver* receiver);
  void detach(LinkReceiver* receiver);  // serves nothing for it any more, when it returns
  void lend(LinkReceiver& receiver, std::int32_t page, bool is_lent) { receivers_.lend(receiver, page, is_lent); }
  std::uint64_t num_served() const { return receivers_.num_served(); }
  const Receivers& receivers() const { return receivers_; }

  // How long a device without a step stays awake behind the last task, or step, while links are attached to it: longer
  // than a sender computes between two tasks. Then it sleeps until a sender rings.
  static constexpr std::chrono::milliseconds kAwakeIdle{5};

 private:
  struct Job {
    const Program* program;
    Step step;
  };

  using Clock = std::chrono::steady_clock;

  void serve();
  void run(const Job& job);
  void idle(std::uint32_t seen);
  void ring();

  Receivers receivers_;
  Team team_;
  Word bell_{0};  // moves with whatever the device's thread has to look at
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Job> queue_;
  std::uint64_t num_submitted_ = 0;
  std::uint64_t num_done_ = 0;
  bool ends_ = false;
  std::array<StepTimes, kNumTimes> times_{};
  Clock::time_point last_end_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace treadle
