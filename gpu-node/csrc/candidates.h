// The few tokens of a row that a filter can leave, found without putting the row in order.
#pragma once

#include <limits>
#include <span>

#include "kernels.h"
#include "sampling_scratch.h"

namespace treadle {

inline constexpr double kNoBound = -std::numeric_limits<double>::infinity();

// Some logits of a row, in the order of their tokens.
struct Candidates {
  std::span<const float> logits;
  std::span<const std::int32_t> token_ids;  // empty where they are the whole row

  std::int32_t token(std::size_t i) const { return token_ids.empty() ? static_cast<std::int32_t>(i) : token_ids[i]; }
};

// A row of finite logits, with the largest of each chunk.
struct SurveyedRow {
  std::span<const float> logits;
  std::span<const float> maxima;

  float most() const;
  // A bound that at least `count` logits reach and, where the largest are spread over the row, not many more: the
  // count-th largest of the chunks' largest. -infinity where there are fewer chunks.
  double bound_of_most(std::size_t count, SamplingScratch& scratch) const;
  // The logits of at least `bound`, in `scratch`; the row itself where that is all.
  Candidates at_least(double bound, SamplingScratch& scratch) const;
};

// False where a number is not finite.
bool survey(std::span<const float> logits, const Kernels& kernels, SamplingScratch& scratch, SurveyedRow& row);

}  // namespace treadle
