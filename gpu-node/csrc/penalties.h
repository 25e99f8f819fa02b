// What a request changes about the model's logits before it draws: bias and penalties, as defined by
// gpu_node/executors/draws/penalties.py.
#pragma once

#include <span>

#include "sampling_scratch.h"
#include "step.h"

namespace treadle {

// The row itself, or a copy of it in `scratch` where the draw changes something.
std::span<const float> adjusted_logits(std::span<const float> logits, const TokenDraw& draw, const Step& step,
                                       SamplingScratch& scratch);

}  // namespace treadle
