// How tokens are drawn: what comes with a step for each of its draws. gpu_node/kernels/cpu/draws.py has the same layout.
#pragma once

#include <cstdint>

namespace treadle {

// Places of drawn tokens that later steps may read (as many as gpu_node/executors/draws/cells.py hands out). A token id below 0
// stands for the token in cell -1 - id.
constexpr std::int32_t kNumCells = 1 << 16;

struct DrawInput {
  double temperature;  // 0: the most likely
  double top_p;
  double min_p;
  double presence_penalty;
  double frequency_penalty;
  double repetition_penalty;
  std::uint64_t seed;
  std::int32_t position;
  std::int32_t choice;
  std::int32_t row;      // of the logits
  std::int32_t top_k;    // 0: all
  std::int32_t num_top;  // logprobs beside the drawn token's; -1: none at all
  std::int32_t num_biases;
  std::int32_t num_prompt_tokens;  // both 0 where no penalty asks for them
  std::int32_t num_output_tokens;
  std::int32_t num_mask_bytes;  // 0: any token may be drawn
  std::int32_t is_mask_late;    // 1: it comes when the step is under way

  bool has_penalties() const {
    return presence_penalty != 0.0 || frequency_penalty != 0.0 || repetition_penalty != 1.0;
  }
};
static_assert(sizeof(DrawInput) == 96);

struct Bias {
  std::int32_t token_id;
  double value;
};
static_assert(sizeof(Bias) == 16);

}  // namespace treadle
