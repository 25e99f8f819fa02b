// What others wait for a device to do, looked at between two operators (Weaver, ATC'25, §4.1).
#pragma once

#include <atomic>
#include <cstdint>

namespace treadle {

class Poll {
 public:
  using Serve = void (*)(void* context);

  Poll() = default;  // nothing ever waits

  // `num_asked` counts what has been asked for; whoever asks adds to it (release) when all that `serve` needs is there.
  Poll(Serve serve, void* context, const std::atomic<std::uint64_t>* num_asked)
      : serve_(serve), context_(context), num_asked_(num_asked), num_served_(num_asked->load()) {}

  // One load when nothing waits. `serve` is called once for all that was asked since the last call.
  void look() {
    if (num_asked_ == nullptr) return;
    const std::uint64_t asked = num_asked_->load(std::memory_order_acquire);
    if (asked == num_served_) return;
    num_served_ = asked;
    serve_(context_);
  }

 private:
  Serve serve_ = nullptr;
  void* context_ = nullptr;
  const std::atomic<std::uint64_t>* num_asked_ = nullptr;
  std::uint64_t num_served_ = 0;
};

}  // namespace treadle
