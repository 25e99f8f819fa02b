// What a thread has for itself while it draws tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace treadle {

// Grown by the first draw that needs it, so that threads which only take the most likely token have none.
struct SamplingScratch {
  std::vector<float> adjusted;             // [vocabulary]: logits with bias and penalties
  std::vector<std::uint32_t> occurrences;  // [vocabulary]: zeros between two draws
  std::vector<float> allowed;              // logits of the tokens that a mask allows
  std::vector<std::int32_t> allowed_ids;
  std::vector<float> maxima;               // [chunks]: the largest logit of each
  std::vector<float> candidates;           // logits
  std::vector<std::int32_t> candidate_ids;
  std::vector<float> top;                  // the k largest
  std::vector<float> ranked;               // some logits, to be put in order
  std::vector<std::int32_t> order;
  std::vector<double> bins;
  std::vector<double> sums;                // [chunks]: of weights
};

}  // namespace treadle
