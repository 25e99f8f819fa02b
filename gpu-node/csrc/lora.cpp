#include "lora.h"

#include "parts.h"

namespace treadle {

void LoraShrink::run(int task, const Step& step, Scratch& scratch) const {
  const AdaptedRows piece = step.adapted(between_.rows, share())[task];
  const PackedWeight* weight = adapters_[piece.adapter].shrink;
  if (weight == nullptr) return;
  const int num_rows = piece.end_row - piece.first_row;
  for (int panel = 0; panel < weight->num_panels; ++panel)
    kernels_.linear(linear_task(x_.narrow(piece.first_row), x_.stride, *weight, panel, num_rows, Epilogue::store,
                                sums_.wide(piece.first_row) + panel * kPanelColumns, sums_.stride, scratch));
  for (int row = piece.first_row; row < piece.end_row; ++row)
    kernels_.round(sums_.wide(row), weight->num_outputs, between_.narrow(row));
}

void LoraExpand::run(int task, const Step& step, Scratch& scratch) const {
  const AdaptedRows piece = step.adapted(between_.rows, share())[task / kParts];
  const PackedWeight* weight = adapters_[piece.adapter].expand;
  if (weight == nullptr) return;
  const int num_rows = piece.end_row - piece.first_row;
  const auto [first_panel, end_panel] = part_of(weight->num_panels, task % kParts, kParts);
  // a panel is written whole: what lies behind the last column gets zeros added
  for (int panel = first_panel; panel < end_panel; ++panel)
    kernels_.linear(linear_task(between_.narrow(piece.first_row), between_.stride, *weight, panel, num_rows,
                                Epilogue::add, out_.wide(piece.first_row) + panel * kPanelColumns, out_.stride, scratch));
}

}  // namespace treadle
