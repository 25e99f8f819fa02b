// A number that threads of one process wait for to change: awake for a moment, then asleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace treadle {

class Signal {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void raise();
  void wait_beyond(std::uint32_t seen) const;

 private:
  // Longer than two threads of an undisturbed team come apart. Where threads share a core with others, or with each
  // other, a thread that waits any longer takes the time that the one it waits for needs.
  static constexpr std::chrono::microseconds kAwake{8};
  static constexpr int kSpins = 16;  // between two looks at the clock

  std::atomic<std::uint32_t> value_{0};
};

}  // namespace treadle
