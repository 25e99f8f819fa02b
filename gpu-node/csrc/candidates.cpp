#include "candidates.h"

#include <algorithm>
#include <functional>

namespace treadle {

bool survey(std::span<const float> logits, const Kernels& kernels, SamplingScratch& scratch, SurveyedRow& row) {
  scratch.maxima.resize((logits.size() + kChunkLogits - 1) / kChunkLogits);
  row = {logits, scratch.maxima};
  return kernels.find_maxima(logits.data(), static_cast<int>(logits.size()), scratch.maxima.data());
}

float SurveyedRow::most() const { return *std::max_element(maxima.begin(), maxima.end()); }

double SurveyedRow::bound_of_most(std::size_t count, SamplingScratch& scratch) const {
  if (count > maxima.size()) return kNoBound;
  std::vector<float>& ranked = scratch.ranked;
  ranked.assign(maxima.begin(), maxima.end());
  const auto last = ranked.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(ranked.begin(), last, ranked.end(), std::greater<>());
  return *last;
}

Candidates SurveyedRow::at_least(double bound, SamplingScratch& scratch) const {
  if (bound == kNoBound) return {logits, {}};
  // one place more than there can be: each logit is written, and stays where the next is written behind it
  scratch.candidates.resize(logits.size() + 1);
  scratch.candidate_ids.resize(logits.size() + 1);
  float* values = scratch.candidates.data();
  std::int32_t* token_ids = scratch.candidate_ids.data();
  std::size_t num_found = 0;
  for (std::size_t chunk = 0; chunk < maxima.size(); ++chunk) {
    if (maxima[chunk] < bound) continue;
    const std::size_t end = std::min(logits.size(), (chunk + 1) * kChunkLogits);
    for (std::size_t token = chunk * kChunkLogits; token < end; ++token) {
      values[num_found] = logits[token];
      token_ids[num_found] = static_cast<std::int32_t>(token);
      num_found += logits[token] >= bound;
    }
  }
  return {{values, num_found}, {token_ids, num_found}};
}

}  // namespace treadle
