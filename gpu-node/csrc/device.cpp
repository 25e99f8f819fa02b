#include "device.h"

#include <stdexcept>
#include <string>

namespace treadle {
namespace {

// No sleep needs a timeout; this one is a safety net against a wake-up that is lost.
constexpr std::chrono::seconds kAsleepIdle{1};

}  // namespace

Device::Device(int num_threads, std::vector<int> cpus)
    : team_(num_threads, std::move(cpus), receivers_), thread_([this] { serve(); }) {}

Device::~Device() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ring();
  thread_.join();
}

std::uint64_t Device::submit(const Program& program, Step step) {
  std::uint64_t event = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({&program, std::move(step)});
    event = ++num_submitted_;
  }
  ring();
  return event;
}

void Device::ring() {
  bell_.fetch_add(1, std::memory_order_seq_cst);
  wake_sleepers(bell_);
}

void Device::attach(LinkReceiver* receiver) {
  receivers_.attach(receiver);
  ring();
}

void Device::detach(LinkReceiver* receiver) {
  receivers_.detach(receiver);
  ring();
}

bool Device::is_done(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  return num_done_ >= event;
}

void Device::wait(std::uint64_t event) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ >= event; });
}

void Device::drain() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ == num_submitted_; });
}

StepTimes Device::times(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  if (event == 0 || event > num_done_ || event + kNumTimes <= num_done_) {
    throw std::invalid_argument("the times of step " + std::to_string(event) + " are not known (any more)");
  }
  return times_[event % kNumTimes];
}

std::vector<std::pair<double, double>> Device::lane_times(int lane) const {
  const std::lock_guard lock(mutex_);
  if (num_done_ < num_submitted_) throw std::invalid_argument("steps are under way");
  return team_.lanes().times(lane);
}

// The lock is not held; only this thread counts steps done.
void Device::run(const Job& job) {
  const auto begin = Clock::now();
  team_.run(*job.program, job.step);
  const auto end = Clock::now();
  const std::chrono::duration<double> run = end - begin;
  const std::chrono::duration<double> idle = begin - last_end_;
  last_end_ = end;
  const OffloadTimes offload = team_.take_times();
  const std::chrono::duration<double> served = offload.served, waited = offload.waited;
  const std::lock_guard lock(mutex_);
  times_[(num_done_ + 1) % kNumTimes] = {run.count(), num_done_ == 0 ? 0.0 : idle.count(), served.count(),
                                         waited.count()};
  ++num_done_;
}

// Returns when the bell has moved from what was seen of it, or earlier.
void Device::idle(std::uint32_t seen) {
  auto awake_until = Clock::now() + kAwakeIdle;
  while (bell_.load(std::memory_order_acquire) == seen && !receivers_.is_empty()) {
    if (team_.serve_others()) {
      awake_until = Clock::now() + kAwakeIdle;
    } else if (Clock::now() > awake_until) {
      break;
    } else {
      pause();
    }
  }
  team_.take_times();  // of no step
  if (bell_.load(std::memory_order_acquire) == seen) receivers_.sleep(bell_, seen, kAsleepIdle);
}

void Device::serve() {
  team_.pin(0);
  for (std::unique_lock lock(mutex_);;) {
    const std::uint32_t seen = bell_.load(std::memory_order_acquire);
    if (queue_.empty()) {
      if (ends_) return;
      lock.unlock();
      idle(seen);
      lock.lock();
      continue;
    }
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(job);
    if (!receivers_.is_empty() && team_.serve_others()) team_.take_times();  // where no operator is polled
    lock.lock();
    changed_.notify_all();
  }
}

}  // namespace treadle
