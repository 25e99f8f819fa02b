// Words in memory that processes share, and how to sleep until one changes: std::atomic::wait is for one process alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace treadle {

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free, "a word that needs a lock cannot lie in shared memory");

// A word, and what it was when its reader decided to sleep.
struct Watched {
  const Word* word;
  std::uint32_t seen;
};

// Sleeps until a thread wakes the sleepers of a word, or a word is not what was seen of it, or the time is over. May
// return early. Where the system can watch but one word, the others are looked at every `kBlindSleep`.
void sleep_on(std::span<const Watched> words, std::chrono::nanoseconds at_most);
constexpr std::chrono::milliseconds kBlindSleep{1};
constexpr int kMaxWatched = 128;

void wake_sleepers(const Word& word);

// Between two looks at a word.
inline void pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

}  // namespace treadle
