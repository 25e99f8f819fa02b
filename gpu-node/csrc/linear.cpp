#include "linear.h"

#include <algorithm>

namespace treadle {

LinearTask linear_task(const Bf16* x, std::ptrdiff_t x_stride, const PackedWeight& weight, int panel, int num_rows,
                       Epilogue epilogue, void* out, std::ptrdiff_t out_stride, Scratch& scratch) {
  LinearTask task{x, x_stride, nullptr, weight.num_inputs / kPair, num_rows, epilogue, out, out_stride};
  if (weight.type == Type::int8) {
    task.int8 = {weight.panel<std::uint8_t>(panel), weight.scales + panel * kPanelColumns,
                 scratch.room_for_panel(weight.panel_numbers())};
  } else {
    task.panel = weight.panel<Bf16>(panel);
  }
  return task;
}

int Linear::num_row_parts(const Step& step) const {
  return (num_rows_of(out_.rows, step) + kMaxRowsTogether - 1) / kMaxRowsTogether;
}

int Linear::panels_together(const Step& step) const {
  if (num_rows_of(out_.rows, step) > kFewRows) return 1;
  return static_cast<int>((kMinTaskBytes + weight_.panel_bytes() - 1) / weight_.panel_bytes());
}

int Linear::num_tasks(const Step& step) const {
  const int together = panels_together(step);
  return (weight_.num_panels + together - 1) / together * num_row_parts(step);
}

void Linear::run(int task, const Step& step, Scratch& scratch) const {
  const int num_rows = num_rows_of(out_.rows, step), num_parts = num_row_parts(step);
  const int part = task % num_parts;  // parts of a panel come one after another, while it is in the cache
  const int first_row = static_cast<int>(std::int64_t{num_rows} * part / num_parts);
  const int end_row = static_cast<int>(std::int64_t{num_rows} * (part + 1) / num_parts);
  const int together = panels_together(step), first_panel = task / num_parts * together;
  const int panel_columns = epilogue_ == Epilogue::silu_mul ? kPanelColumns / 2 : kPanelColumns;
  for (int panel = first_panel; panel < std::min(first_panel + together, weight_.num_panels); ++panel) {
    void* out = epilogue_ == Epilogue::silu_mul ? static_cast<void*>(out_.narrow(first_row) + panel * panel_columns)
                                                : static_cast<void*>(out_.wide(first_row) + panel * panel_columns);
    kernels_.linear(linear_task(x_.narrow(first_row), x_.stride, weight_, panel, end_row - first_row, epilogue_, out,
                                out_.stride, scratch));
  }
}

}  // namespace treadle
