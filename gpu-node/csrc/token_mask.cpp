#include "token_mask.h"

#include <algorithm>
#include <bit>

namespace treadle {
namespace {

constexpr std::size_t kByteTokens = 8;

}  // namespace

bool allows_tokens_of(std::span<const std::uint8_t> mask, std::int32_t vocabulary) {
  const auto last = std::find_if(mask.rbegin(), mask.rend(), [](std::uint8_t byte) { return byte != 0; });
  if (last == mask.rend()) return false;
  const std::ptrdiff_t num_bytes = mask.rend() - last;
  return num_bytes * std::ptrdiff_t{kByteTokens} - std::countl_zero(*last) <= vocabulary;
}

bool wait_for_masks(const Word& given) {
  using Clock = std::chrono::steady_clock;
  for (const auto until = Clock::now() + kMaskPatience; given.load(std::memory_order_acquire) == 0;) {
    const auto left = until - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    const Watched watched{&given, 0};
    sleep_on({&watched, 1}, left);
  }
  return true;
}

void give_masks(Word& given) {
  given.store(1, std::memory_order_release);
  wake_sleepers(given);
}

Candidates allowed_logits(std::span<const float> logits, std::span<const std::uint8_t> mask,
                          SamplingScratch& scratch) {
  // one place more than there can be: each logit is written, and stays where the next is written behind it
  scratch.allowed.resize(logits.size() + 1);
  scratch.allowed_ids.resize(logits.size() + 1);
  float* values = scratch.allowed.data();
  std::int32_t* token_ids = scratch.allowed_ids.data();
  std::size_t num_found = 0;
  for (std::size_t byte = 0; byte < mask.size(); ++byte) {
    if (mask[byte] == 0) continue;
    const std::size_t first = byte * kByteTokens, end = std::min(logits.size(), first + kByteTokens);
    for (std::size_t token = first; token < end; ++token) {
      values[num_found] = logits[token];
      token_ids[num_found] = static_cast<std::int32_t>(token);
      num_found += mask[byte] >> (token - first) & 1U;
    }
  }
  return {{values, num_found}, {token_ids, num_found}};
}

}  // namespace treadle
