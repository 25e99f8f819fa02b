#include "penalties.h"

#include <algorithm>
#include <utility>

namespace treadle {
namespace {

constexpr std::uint32_t kInPrompt = 1, kOnceInOutput = 2;

float penalised(float value, std::uint32_t occurrences, const DrawInput& how) {
  double logit = value;
  logit = logit > 0.0 ? logit / how.repetition_penalty : logit * how.repetition_penalty;
  if (const std::uint32_t count = occurrences / kOnceInOutput; count > 0) {
    logit -= how.frequency_penalty * count;
    logit -= how.presence_penalty;
  }
  return static_cast<float>(logit);
}

}  // namespace

std::span<const float> adjusted_logits(std::span<const float> logits, const TokenDraw& draw, const Step& step,
                                       SamplingScratch& scratch) {
  if (draw.biases.empty() && !draw.how.has_penalties()) return logits;
  std::vector<float>& adjusted = scratch.adjusted;
  adjusted.assign(logits.begin(), logits.end());
  for (const Bias& bias : draw.biases)
    adjusted[bias.token_id] = static_cast<float>(adjusted[bias.token_id] + bias.value);
  if (!draw.how.has_penalties()) return adjusted;
  std::vector<std::uint32_t>& occurrences = scratch.occurrences;
  if (occurrences.size() < logits.size()) occurrences.resize(logits.size());
  for (const std::int32_t id : draw.prompt) occurrences[step.token(id)] |= kInPrompt;
  for (const std::int32_t id : draw.output) occurrences[step.token(id)] += kOnceInOutput;
  for (const auto& ids : {draw.prompt, draw.output}) {
    for (const std::int32_t id : ids) {
      // zero again once the token has its penalty, for the next draw and for the token's next place
      const std::uint32_t times = std::exchange(occurrences[step.token(id)], 0);
      float& logit = adjusted[step.token(id)];
      if (times != 0) logit = penalised(logit, times, draw.how);
    }
  }
  return adjusted;
}

}  // namespace treadle
