// The least logit that top-k or top-p keeps: a selection in linear time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sampling_scratch.h"

namespace treadle {

// Where logits lie; those below `least` are few, or do not matter.
struct Range {
  float most, least;
};

Range range_of(std::span<const float> logits);

// Writes how much each of some logits counts.
using Measure = std::function<void(std::span<const float> logits, double* amounts)>;
// How much is wanted, of how much there is in all.
using Target = std::function<double(double whole)>;

// Of `logits` from the largest down, the first at which the amounts so far come to the target; the least one where they
// never do. Uses `scratch.ranked` and `scratch.bins`.
float cutoff(std::span<const float> logits, Range range, const Measure& measure, const Target& target,
             SamplingScratch& scratch);

}  // namespace treadle
