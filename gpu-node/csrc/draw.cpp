#include "draw.h"

#include <algorithm>

#include "logprobs.h"
#include "penalties.h"
#include "sampling.h"
#include "token_mask.h"

namespace treadle {

// One task a draw: they take long, and unlike times. Where the step returns logits, each task copies one row.
int Draw::num_tasks(const Step& step) const {
  return std::max(step.num_draws(), step.logits == nullptr ? 0 : step.num_draw_rows());
}

void Draw::run(int task, const Step& step, Scratch& scratch) const {
  if (task < step.num_draws()) draw(task, step, scratch.sampling);
  if (step.logits != nullptr && task < step.num_draw_rows())
    std::copy_n(logits_.wide(task), logits_.num_columns, step.logits + std::ptrdiff_t{task} * logits_.num_columns);
}

void Draw::draw(int index, const Step& step, SamplingScratch& scratch) const {
  TokenDraw draw = step.draws[index];
  const std::span<const float> logits(logits_.wide(draw.how.row), logits_.num_columns);
  bool knows_mask = true;
  if (draw.how.is_mask_late != 0) {
    knows_mask = wait_for_masks(*step.late_masks_given);
    if (knows_mask && !allows_tokens_of(draw.mask, logits_.num_columns)) draw.mask = {};  // the token is not wanted
  }
  const std::int32_t token =
      knows_mask ? draw_token(adjusted_logits(logits, draw, step, scratch), draw, kernels_, scratch) : -1;
  step.tokens[index] = token;
  step.cells[step.first_cell + index] = std::max(token, 0);  // a step that counts on it has to run all the same
  if (token < 0 || draw.how.num_top < 0) return;
  const auto num_top = static_cast<std::size_t>(draw.how.num_top);
  write_logprobs(logits, token, kernels_, scratch, step.logprobs[index], {step.top_tokens + draw.first_top, num_top},
                 {step.top_logprobs + draw.first_top, num_top});
}

}  // namespace treadle
