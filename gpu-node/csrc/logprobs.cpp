#include "logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "candidates.h"
#include "sampling.h"

namespace treadle {

void write_logprobs(std::span<const float> logits, std::int32_t token, const Kernels& kernels,
                    SamplingScratch& scratch, double& logprob, std::span<std::int32_t> top_tokens,
                    std::span<double> top_logprobs) {
  SurveyedRow row;
  survey(logits, kernels, scratch, row);
  const Scale scale{row.most(), 1.0, kNoBound};
  const double log_of_whole = scale.most + std::log(weigh_chunks(logits, scale, kernels, scratch));
  logprob = logits[token] - log_of_whole;
  if (top_tokens.empty()) return;
  const Candidates candidates = row.at_least(row.bound_of_most(top_tokens.size(), scratch), scratch);
  std::vector<std::int32_t>& order = scratch.order;
  order.resize(candidates.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top_tokens.size()), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float one = candidates.logits[a], other = candidates.logits[b];
                      return one > other || (one == other && a < b);
                    });
  for (std::size_t i = 0; i < top_tokens.size(); ++i) {
    top_tokens[i] = candidates.token(order[i]);
    top_logprobs[i] = candidates.logits[order[i]] - log_of_whole;
  }
}

}  // namespace treadle
