// From a row of logits to a token, as gpu_node/executors/draws/sampler.py defines it.
#pragma once

#include <span>

#include "kernels.h"
#include "sampling_scratch.h"
#include "step.h"

namespace treadle {

// The token, or -1 where a logit is not finite, allowed or not. `logits` have their bias and penalties.
std::int32_t draw_token(std::span<const float> logits, const TokenDraw& draw, const Kernels& kernels,
                        SamplingScratch& scratch);

// Sum of the weights of `logits`; of each chunk in `scratch.sums`.
double weigh_chunks(std::span<const float> logits, const Scale& scale, const Kernels& kernels,
                    SamplingScratch& scratch);

}  // namespace treadle
