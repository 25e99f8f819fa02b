// Which tokens a draw may give: token i if bit i % 8 of byte i / 8 is set, none behind the last byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "candidates.h"
#include "futex.h"
#include "sampling_scratch.h"

namespace treadle {

// Whether `mask` allows some token, and none outside of a vocabulary of so many.
bool allows_tokens_of(std::span<const std::uint8_t> mask, std::int32_t vocabulary);

// The logits of the tokens that `mask` allows, in `scratch`, where no other draw of this thread has them yet.
Candidates allowed_logits(std::span<const float> logits, std::span<const std::uint8_t> mask, SamplingScratch& scratch);

// Waits until masks that come late are given; false where they are not within `kMaskPatience`: their giver is gone.
bool wait_for_masks(const Word& given);
constexpr std::chrono::seconds kMaskPatience{30};

void give_masks(Word& given);

}  // namespace treadle
