// How likely tokens are by the model's own distribution: no bias, no penalty, temperature 1.
#pragma once

#include <span>

#include "kernels.h"
#include "sampling_scratch.h"
#include "step.h"

namespace treadle {

// Writes the logprob of `token` and those of the most likely tokens, as many as there are places: the largest first,
// equals in the order of their ids. All logits are finite.
void write_logprobs(std::span<const float> logits, std::int32_t token, const Kernels& kernels,
                    SamplingScratch& scratch, double& logprob, std::span<std::int32_t> top_tokens,
                    std::span<double> top_logprobs);

}  // namespace treadle
