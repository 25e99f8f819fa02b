#include "linear.h"

#include <algorithm>

#include "parts.h"

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

int Linear::num_row_parts(int num_rows) { return (num_rows + kMaxRowsTogether - 1) / kMaxRowsTogether; }

int Linear::num_panel_parts(int num_rows) const {
  if (num_rows > kFewRows) return weight_.num_panels;
  const std::ptrdiff_t wanted = weight_.num_panels * weight_.panel_bytes() / kTaskBytes;
  const std::ptrdiff_t nearest = (wanted + kTasksMultiple / 2) / kTasksMultiple * kTasksMultiple;
  const std::ptrdiff_t most = weight_.num_panels, least = std::min<std::ptrdiff_t>(kTasksMultiple, most);
  return static_cast<int>(std::clamp(nearest, least, most));
}

int Linear::num_tasks(const Step& step) const {
  const auto [first, end] = step.rows(out_.rows, share());
  return num_panel_parts(end - first) * num_row_parts(end - first);
}

void Linear::run(int task, const Step& step, Scratch& scratch) const {
  const auto [first, end] = step.rows(out_.rows, share());
  const int num_parts = num_row_parts(end - first);
  const int part = task % num_parts;  // parts of a panel come one after another, while it is in the cache
  const auto [first_of_part, end_of_part] = part_of(end - first, part, num_parts);
  const auto [first_panel, end_panel] = part_of(weight_.num_panels, task / num_parts, num_panel_parts(end - first));
  const int first_row = first + first_of_part, num_rows = end_of_part - first_of_part;
  const int panel_columns = epilogue_ == Epilogue::silu_mul ? kPanelColumns / 2 : kPanelColumns;
  for (int panel = first_panel; panel < end_panel; ++panel) {
    void* out = epilogue_ == Epilogue::silu_mul ? static_cast<void*>(out_.narrow(first_row) + panel * panel_columns)
                                                : static_cast<void*>(out_.wide(first_row) + panel * panel_columns);
    kernels_.linear(linear_task(x_.narrow(first_row), x_.stride, weight_, panel, num_rows, epilogue_, out, out_.stride,
                                scratch));
  }
}

}  // namespace treadle
