// One operation of a program, with everything it touches resolved when the program is made.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "bf16.h"
#include "memory.h"
#include "sampling_scratch.h"
#include "step.h"

namespace treadle {

// What a thread has for itself while it works on a task.
struct Scratch {
  Memory attention;
  std::vector<std::byte> staging;
  SamplingScratch sampling;

  // Room for so many bfloat16 numbers; what was there before is gone.
  Bf16* room_for_panel(std::ptrdiff_t num_numbers) {
    if (num_numbers > num_panel_numbers_) {
      panel_ = Memory(num_numbers * sizeof(Bf16));
      num_panel_numbers_ = num_numbers;
    }
    return panel_.as<Bf16>();
  }

 private:
  Memory panel_;
  std::ptrdiff_t num_panel_numbers_ = 0;
};

// The tasks of an operator may run in any order and on any thread; all of them end before the next operator begins.
class Operator {
 public:
  Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  virtual ~Operator() = default;

  virtual int num_tasks(const Step& step) const = 0;
  virtual void run(int task, const Step& step, Scratch& scratch) const = 0;

  // Called by one thread when all tasks are done, before the next operator begins.
  virtual void finish(const Step&) const {}

  // The layer of the cache that it reads or writes, if any.
  static constexpr int kNoLayer = -1;
  virtual int cache_layer() const { return kNoLayer; }

  // Whether it may have to wait for another device before its tasks begin. Then one thread asks whether it may begin,
  // over and over, or sleeps between until something has moved, or `at_most`.
  virtual bool waits(const Step&) const { return false; }
  virtual bool is_ready(const Step&) const { return true; }
  virtual void sleep(const Step&, std::chrono::nanoseconds) const {}
  // Whether asking that is of use while there is other work: of what is only wanted when nothing else is left, not before
  // it has come.
  virtual bool is_worth_asking(const Step&) const { return true; }

  // Whether the device looks behind it for what waits.
  bool is_polled() const { return is_polled_; }
  void poll_behind() { is_polled_ = true; }

  // Into how many runs its tasks are divided, where it can be, with a look for what waits behind each of them (Weaver,
  // ATC'25, §4.2): no task changes, so no number does. Nothing may run meanwhile that has it.
  virtual bool is_splittable() const { return false; }
  int num_parts() const { return num_parts_; }
  void split(int num_parts) { num_parts_ = num_parts; }

  // How long it has run in all, others' tasks and waits left out.
  void took(std::chrono::nanoseconds time) const {
    took_ns_.fetch_add(time.count(), std::memory_order_relaxed);
    num_took_.fetch_add(1, std::memory_order_relaxed);
  }
  std::int64_t num_took() const { return num_took_.load(std::memory_order_relaxed); }
  std::int64_t took_ns() const { return took_ns_.load(std::memory_order_relaxed); }

  // `share`: which of the program's shares of a step it works on.
  void work_on(int share) { share_ = share; }

 protected:
  int share() const { return share_; }

 private:
  bool is_polled_ = false;
  int num_parts_ = 1;
  mutable std::atomic<std::int64_t> took_ns_{0}, num_took_{0};
  int share_ = 0;
};

}  // namespace treadle
