#include "team.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

#include "kernels.h"

namespace treadle {
namespace {

void pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Signal::raise() {
  value_.fetch_add(1, std::memory_order_release);
  value_.notify_all();
}

void Signal::wait_beyond(std::uint32_t seen) const {
  const auto asleep = std::chrono::steady_clock::now() + kAwake;
  do {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value() != seen) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < asleep);
  value_.wait(seen, std::memory_order_acquire);
}

Team::Team(int num_threads, std::vector<int> cpus)
    : cpus_(std::move(cpus)), num_threads_(num_threads), scratch_(num_threads) {
  for (Scratch& scratch : scratch_) scratch.attention = Memory(attention_scratch_floats(kMaxHeadDim) * sizeof(float));
  for (int member = 1; member < num_threads; ++member) helpers_.emplace_back([this, member] { serve(member); });
}

Team::~Team() {
  ends_ = true;
  start_.raise();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::pin(int member) const {
  if (cpus_.empty()) return;
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus_[member % cpus_.size()], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a wish: a CPU that is not ours is no reason to stop
#endif
}

void Team::run(const Program& program, const Step& step) {
  program_ = &program;
  step_ = &step;
  start_.raise();
  work(0);
}

void Team::serve(int member) {
  pin(member);
  for (std::uint32_t seen = 0;; ++seen) {
    start_.wait_beyond(seen);
    if (ends_) return;
    work(member);
  }
}

void Team::work(int member) {
  const Step& step = *step_;
  for (const auto& current : program_->operators()) {
    const int num_tasks = current->num_tasks(step);
    for (int task; (task = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks;)
      current->run(task, step, scratch_[member]);
    meet(current->is_polled());
  }
}

void Team::meet(bool is_polled) {
  const std::uint32_t seen = met_.value();
  if (num_waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_threads_) {
    met_.wait_beyond(seen);
    return;
  }
  // the last to come prepares the next operator, which nobody has begun, while all others wait
  if (is_polled) poll_.look();
  num_waiting_.store(0, std::memory_order_relaxed);
  next_task_.store(0, std::memory_order_relaxed);
  met_.raise();
}

}  // namespace treadle
