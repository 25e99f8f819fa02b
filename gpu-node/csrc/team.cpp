#include "team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels.h"
#include "parts.h"

namespace treadle {

Team::Team(int num_threads, std::vector<int> cpus, Receivers& receivers)
    : cpus_(std::move(cpus)),
      num_threads_(num_threads),
      scratch_(num_threads),
      receivers_(receivers),
      lanes_(num_threads, receivers) {
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
  // where others are served between operators, what they ask for may lie where blocks move: then these move first
  moves_beside_ = step.moves_beside && receivers_.is_empty();
  if (step.in_lanes) lanes_.begin(program.lanes(), step);
  works_since_ = Clock::now();
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

bool Team::serve_others() {
  if (!receivers_.look()) return false;
  program_ = nullptr;
  start_.raise();
  work(0);
  return true;
}

OffloadTimes Team::take_times() { return std::exchange(times_, {}); }

void Team::work(int member) {
  if (program_ != nullptr) {
    work_program(member);
    return;
  }
  meet([&] { begin_to_serve(); });
  work_others(member);
}

void Team::work_program(int member) {
  const auto& operators = program_->operators();
  if (!step_->in_lanes) {
    work_list(member);
    return;
  }
  for (std::size_t i = 0; i < program_->num_movers(); ++i) work_operator(*operators[i], member);
  lanes_.work(scratch_[member]);
  meet([&] {
    times_.served += lanes_.take_served();
    times_.waited += lanes_.take_waited();
  });
  work_operator(*operators.back(), member);  // draws
}

void Team::work_list(int member) {
  const auto& operators = program_->operators();
  const std::size_t end = operators.size();  // behind the last meeting the program may be gone
  for (std::size_t i = moves_beside_ ? program_->num_movers() : 0; i < end; ++i) {
    const int layer = moves_beside_ ? program_->layer_beside(i) : Operator::kNoLayer;
    if (layer == Operator::kNoLayer) {
      work_operator(*operators[i], member);
    } else {
      work_beside(*operators[i], *operators.front(), layer, member);
    }
  }
}

void Team::work_beside(const Operator& current, const Operator& mover, int layer, int member) {
  const int num_tasks = current.num_tasks(*step_);
  for (int task; (task = next_task_.fetch_add(1, std::memory_order_relaxed)) <= num_tasks;) {
    if (task == 0) {
      mover.run(layer, *step_, scratch_[member]);
    } else {
      current.run(task - 1, *step_, scratch_[member]);
    }
  }
  meet([&] { current.finish(*step_); });
}

void Team::work_operator(const Operator& current, int member) {
  const Step& step = *step_;
  if (current.waits(step)) {
    do {
      meet([&] { await(current, step); });
      work_others(member);
    } while (!is_ready_);
  }
  const int num_tasks = current.num_tasks(step);
  const int num_parts = std::max(1, std::min(current.num_parts(), num_tasks));
  for (int part = 0; part < num_parts; ++part) {
    const auto [first, end] = part_of(num_tasks, part, num_parts);
    for (int task; (task = first + next_task_.fetch_add(1, std::memory_order_relaxed)) < end;)
      current.run(task, step, scratch_[member]);
    meet([&] {
      const bool is_last = part + 1 == num_parts;
      if (is_last) current.finish(step);
      clock(current, is_last);
      if (current.is_polled() && receivers_.look()) begin_to_serve();
    });
    work_others(member);
  }
}

// Only where there are links: nothing else plans by these times. In lanes operators have no time of their own, so such
// a step is none of those that are measured.
void Team::clock(const Operator& current, bool is_last) {
  if (receivers_.is_empty() || step_->in_lanes) return;
  const auto now = Clock::now();
  worked_ += now - std::exchange(works_since_, now);
  if (is_last) current.took(std::exchange(worked_, {}));
}

void Team::begin_to_serve() {
  serves_ = true;
  serves_since_ = Clock::now();
}

void Team::work_others(int member) {
  while (serves_) {
    for (int phase = 0; phase < LinkReceiver::kNumPhases; ++phase) {
      const int num_tasks = receivers_.num_tasks(phase);
      for (int task; (task = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks;)
        receivers_.run(phase, task, scratch_[member]);
      meet([&] {
        if (phase + 1 < LinkReceiver::kNumPhases) return;
        serves_ = receivers_.finish();
        const auto now = Clock::now();
        times_.served += now - std::exchange(serves_since_, now);
        works_since_ = now;
      });
    }
  }
}

// Ends when the operator may begin, or when another device waits for this one.
void Team::await(const Operator& next, const Step& step) {
  const auto begin = Clock::now();
  for (;;) {
    is_ready_ = next.is_ready(step);
    if (is_ready_) break;
    if (receivers_.look()) {
      begin_to_serve();
      break;
    }
    if (Clock::now() - begin < LaneRun::kAwakeWaiting) {
      pause();
    } else {
      next.sleep(step, LaneRun::kAsleepWaiting);
    }
  }
  works_since_ = Clock::now();
  times_.waited += works_since_ - begin;
}

template <typename Last>
void Team::meet(const Last& last) {
  const std::uint32_t seen = met_.value();
  if (num_waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_threads_) {
    met_.wait_beyond(seen);
    return;
  }
  // the last thread to come prepares what comes next, which none has begun, while all others wait
  last();
  num_waiting_.store(0, std::memory_order_relaxed);
  next_task_.store(0, std::memory_order_relaxed);
  met_.raise();
}

}  // namespace treadle
