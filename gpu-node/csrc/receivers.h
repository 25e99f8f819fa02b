// What others ask of a device through links: looked at between two operators, and served by all of its threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "link_receiver.h"

namespace treadle {

class Receivers {
 public:
  static constexpr int kMaxLinks = 16;

  Receivers() = default;
  Receivers(const Receivers&) = delete;
  Receivers& operator=(const Receivers&) = delete;

  // --- any thread; these wait while the device serves -----------------------------------------------------------------
  // Throws std::invalid_argument when there are too many.
  void attach(LinkReceiver* receiver);
  // Serves nothing for it any more; what it has under way is refused.
  void detach(LinkReceiver* receiver);
  void lend(LinkReceiver& receiver, std::int32_t page, bool is_lent);

  // --- the device's threads, one at a time ----------------------------------------------------------------------------
  bool is_empty() const { return num_links_.load(std::memory_order_relaxed) == 0; }
  // Whether a task waits; it is taken. Every link is looked at once, in turn; a sender can send no second task before the
  // next look.
  bool look();
  // The task is done: whether another one waits.
  bool finish();
  // Until a sender rings, or `bell` is not what was seen, or `at_most`.
  void sleep(const Word& bell, std::uint32_t seen, std::chrono::nanoseconds at_most);

  // --- all of them together -------------------------------------------------------------------------------------------
  int num_tasks(int phase) const { return current_->num_tasks(phase); }
  void run(int phase, int task, Scratch& scratch) const { current_->run(phase, task, scratch); }

  std::uint64_t num_served() const { return num_served_.load(std::memory_order_relaxed); }
  // Of these, attention alone, and how long all of it has taken.
  std::uint64_t num_attended() const { return num_attended_.load(std::memory_order_relaxed); }
  std::int64_t attended_ns() const { return attended_ns_.load(std::memory_order_relaxed); }

 private:
  class Hold;  // no other thread is at the links while one lives

  bool find(int first);

  std::atomic<bool> is_held_{false};
  std::atomic<int> num_links_{0};
  std::atomic<std::uint64_t> num_served_{0}, num_attended_{0};
  std::atomic<std::int64_t> attended_ns_{0};
  std::chrono::steady_clock::time_point task_since_;
  std::array<LinkReceiver*, kMaxLinks> links_{};
  int current_place_ = 0, begin_ = 0;
  LinkReceiver* current_ = nullptr;
};

}  // namespace treadle
