// The least logit that top-k or top-p keeps: a selection in linear time.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace treadle {

// Writes how much each of some logits counts.
using Measure = std::function<void(std::span<const float> logits, double* amounts)>;

// Of `logits` from the largest down, the first at which the amounts so far come to `target`; the least one where they
// never do. `logits` are left in disorder, and fewer.
float cutoff(std::vector<float>& logits, double target, const Measure& measure, std::vector<double>& bins);

}  // namespace treadle
