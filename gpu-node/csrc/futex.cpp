#include "futex.h"

#include <algorithm>
#include <array>
#include <thread>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace treadle {

#ifdef __linux__
namespace {

using std::chrono::nanoseconds;

timespec as_timespec(nanoseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {static_cast<time_t>(whole.count()), static_cast<long>((time - whole).count())};
}

void sleep_on_one(const Watched& watched, nanoseconds at_most) {
  const timespec time = as_timespec(at_most);
  syscall(SYS_futex, watched.word, FUTEX_WAIT, watched.seen, &time, nullptr, 0);
}

// Of linux/futex.h since 5.16; the headers of this machine may be older than its kernel.
struct Waiter {
  std::uint64_t seen;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr long kFutexWaitv = 449;
constexpr std::uint32_t kWord = 2;  // 32 bits

// False where the system has no such call, or does not let us use it.
bool sleep_on_many(std::span<const Watched> words, nanoseconds at_most) {
  std::array<Waiter, kMaxWatched> waiters;
  for (std::size_t i = 0; i < words.size(); ++i)
    waiters[i] = {words[i].seen, reinterpret_cast<std::uintptr_t>(words[i].word), kWord, 0};
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const timespec until = as_timespec(std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec) + at_most);
  const long result = syscall(kFutexWaitv, waiters.data(), words.size(), 0, &until, CLOCK_MONOTONIC);
  return result >= 0 || (errno != ENOSYS && errno != EPERM);
}

}  // namespace

void sleep_on(std::span<const Watched> words, nanoseconds at_most) {
  if (words.size() > 1 && sleep_on_many(words.first(std::min<std::size_t>(words.size(), kMaxWatched)), at_most)) return;
  sleep_on_one(words.front(), words.size() > 1 ? std::min<nanoseconds>(at_most, kBlindSleep) : at_most);
}

void wake_sleepers(const Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

#else

void sleep_on(std::span<const Watched>, std::chrono::nanoseconds at_most) {
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(at_most, kBlindSleep));
}

void wake_sleepers(const Word&) {}

#endif

}  // namespace treadle
