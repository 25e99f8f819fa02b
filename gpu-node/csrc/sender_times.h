// What a sender measures of its tasks: how long each is away, and what is done at home meanwhile (Weaver, ATC'25, §4.2).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "link.h"

namespace treadle {

class SenderTimes {
 public:
  // --- a device's threads, one at a time ------------------------------------------------------------------------------
  void begin_step(LinkHeader& header) {
    const auto now = Clock::now();
    if (num_steps_++ > 0) step_.observe(now - step_since_);
    step_since_ = now;
    header.local_ns.store(local_.ns(), std::memory_order_relaxed);
    header.step_ns.store(step_.ns(), std::memory_order_relaxed);
  }
  void asked(std::uint32_t task) { asked_[task % kMost] = Clock::now(); }
  // The answer is wanted, and there or not.
  void looked(std::uint32_t task, bool comes) {
    const auto now = Clock::now();
    if (task != wanted_ || !is_wanted_) {
      wanted_ = task;
      is_wanted_ = true;
      wanted_since_ = now;
      local_.observe(now - asked_[task % kMost]);
    }
    if (!comes) return;
    is_wanted_ = false;
    away_ns_.fetch_add((now - asked_[task % kMost]).count(), std::memory_order_relaxed);
    waited_ns_.fetch_add((now - wanted_since_).count(), std::memory_order_relaxed);
    num_answers_.fetch_add(1, std::memory_order_relaxed);
  }

  // --- any thread -----------------------------------------------------------------------------------------------------
  std::uint32_t local_ns() const { return local_.ns(); }
  std::uint32_t step_ns() const { return step_.ns(); }
  std::int64_t away_ns() const { return away_ns_.load(std::memory_order_relaxed); }
  std::int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }
  std::int64_t num_answers() const { return num_answers_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint32_t kMost = 64;  // tasks under way; with more, times of some are another's

  // A mean of late; 0 before the first.
  class Recent {
   public:
    void observe(std::chrono::nanoseconds one) {
      const double now = static_cast<double>(one.count()), before = mean_ns_.load(std::memory_order_relaxed);
      mean_ns_.store(before == 0 ? now : before + (now - before) / kWindow, std::memory_order_relaxed);
    }
    std::uint32_t ns() const {
      constexpr double kMax = std::numeric_limits<std::uint32_t>::max();
      return static_cast<std::uint32_t>(std::min(mean_ns_.load(std::memory_order_relaxed), kMax));
    }

   private:
    static constexpr double kWindow = 256;
    std::atomic<double> mean_ns_{0};
  };

  Recent local_, step_;
  std::array<Clock::time_point, kMost> asked_{};
  Clock::time_point step_since_, wanted_since_;
  std::uint64_t num_steps_ = 0;
  std::uint32_t wanted_ = 0;
  bool is_wanted_ = false;
  std::atomic<std::int64_t> away_ns_{0}, waited_ns_{0}, num_answers_{0};
};

}  // namespace treadle
