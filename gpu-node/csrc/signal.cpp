#include "signal.h"

#include "futex.h"

namespace treadle {

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

}  // namespace treadle
