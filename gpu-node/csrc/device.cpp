#include "device.h"

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

void Device::serve() {
  team_.pin(0);
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    team_.run(*job.program, job.step);
    lock.lock();
    ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace treadle
