#include "device.h"

#include <stdexcept>
#include <string>

namespace treadle {

Device::Device(int num_threads, std::vector<int> cpus)
    : team_(num_threads, std::move(cpus)), thread_([this] { serve(); }) {}

Device::~Device() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t Device::submit(const Program& program, Step step) {
  std::uint64_t event = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({&program, std::move(step)});
    event = ++num_submitted_;
  }
  changed_.notify_all();
  return event;
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

void Device::set_poll(Poll poll) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ == num_submitted_; });
  team_.set_poll(poll);
}

StepTimes Device::times(std::uint64_t event) const {
  const std::lock_guard lock(mutex_);
  if (event == 0 || event > num_done_ || event + kNumTimes <= num_done_) {
    throw std::invalid_argument("the times of step " + std::to_string(event) + " are not known (any more)");
  }
  return times_[event % kNumTimes];
}

// The lock is not held; only this thread counts steps done.
void Device::run(const Job& job) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  team_.run(*job.program, job.step);
  const auto end = Clock::now();
  const std::chrono::duration<double> run = end - begin;
  const std::chrono::duration<double> idle = begin - last_end_;
  last_end_ = end;
  const std::lock_guard lock(mutex_);
  times_[(num_done_ + 1) % kNumTimes] = {run.count(), num_done_ == 0 ? 0.0 : idle.count()};
  ++num_done_;
}

void Device::serve() {
  team_.pin(0);
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(job);
    lock.lock();
    changed_.notify_all();
  }
}

}  // namespace treadle
