#include "linear.h"

#include <algorithm>

namespace treadle {

int Linear::num_row_parts(const Step& step) const {
  return (num_rows_of(out_.rows, step) + kMaxRowsTogether - 1) / kMaxRowsTogether;
}

int Linear::panels_together(const Step& step) const {
  if (num_rows_of(out_.rows, step) > kFewRows) return 1;
  const std::ptrdiff_t panel_bytes = weight_.panel_stride() * static_cast<std::ptrdiff_t>(sizeof(Bf16));
  return static_cast<int>((kMinTaskBytes + panel_bytes - 1) / panel_bytes);
}

int Linear::num_tasks(const Step& step) const {
  const int together = panels_together(step);
  return (weight_.num_panels + together - 1) / together * num_row_parts(step);
}

void Linear::run(int task, const Step& step, Scratch&) const {
  const int num_rows = num_rows_of(out_.rows, step), num_parts = num_row_parts(step);
  const int part = task % num_parts;  // parts of a panel come one after another, while it is in the cache
  const int first_row = static_cast<int>(std::int64_t{num_rows} * part / num_parts);
  const int end_row = static_cast<int>(std::int64_t{num_rows} * (part + 1) / num_parts);
  const int together = panels_together(step), first_panel = task / num_parts * together;
  const int panel_columns = epilogue_ == Epilogue::silu_mul ? kPanelColumns / 2 : kPanelColumns;
  for (int panel = first_panel; panel < std::min(first_panel + together, weight_.num_panels); ++panel) {
    void* out = epilogue_ == Epilogue::silu_mul ? static_cast<void*>(out_.narrow(first_row) + panel * panel_columns)
                                                : static_cast<void*>(out_.wide(first_row) + panel * panel_columns);
    kernels_.linear({x_.narrow(first_row), x_.stride, weight_.panel(panel), weight_.num_inputs / kPair,
                     end_row - first_row, epilogue_, out, out_.stride});
  }
}

}  // namespace treadle
