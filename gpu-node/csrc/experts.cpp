#include "experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace treadle {
namespace {

Columns slot_columns(Memory& memory, int num_slots, int num_columns, Type type) {
  const std::ptrdiff_t stride = (num_columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  const std::size_t number_bytes = type == Type::float32 ? sizeof(float) : sizeof(Bf16);
  memory = Memory(static_cast<std::size_t>(num_slots * stride) * number_bytes);
  return {memory.as<std::byte>(), stride, num_columns, type, RowKind::tokens};
}

}  // namespace

void Route::run_row(int row, const Step&) const {
  const float* x = x_.wide(row);
  float* shares = out_.wide(row);
  std::fill(shares, shares + x_.num_columns, 0.0F);
  float sum = 0, most = 0;
  for (int i = 0; i < num_chosen_; ++i) {
    int best = -1;  // chosen experts have shares above 0: the largest is e ** 0, and one that underflows is raised
    for (int expert = 0; expert < x_.num_columns; ++expert)
      if (shares[expert] == 0 && (best < 0 || x[expert] > x[best])) best = expert;
    if (i == 0) most = x[best];
    shares[best] = std::max(std::exp(x[best] - most), std::numeric_limits<float>::min());
    sum += shares[best];
  }
  for (int expert = 0; expert < x_.num_columns; ++expert)
    if (shares[expert] != 0) shares[expert] /= sum;  // where x is no number, others must not become chosen
}

ExpertSlots::ExpertSlots(const Kernels& kernels, Columns x, Columns routing, std::vector<Expert> experts, int max_rows,
                         int num_chosen, Columns out)
    : kernels_(kernels),
      x_(x),
      routing_(routing),
      out_(out),
      experts_(std::move(experts)),
      firsts_(experts_.size()),
      ends_(experts_.size()),
      slot_of_(static_cast<std::size_t>(max_rows) * experts_.size()) {
  if (experts_.empty() || routing.num_columns != num_experts())
    throw std::invalid_argument("the routing has a column for each expert");
  const int num_slots = max_rows * num_chosen;
  gathered_ = slot_columns(gathered_memory_, num_slots, x.num_columns, Type::bfloat16);
  gates_ = slot_columns(gates_memory_, num_slots, experts_[0].down->num_inputs, Type::bfloat16);
  outputs_ = slot_columns(outputs_memory_, num_slots, out.num_columns, Type::float32);
}

void ExpertSlots::gather(int expert, int first_row, int end_row) {
  // each task counts for itself what the experts before it take: cheaper than to wait for one another
  int slot = 0;
  for (int row = first_row; row < end_row; ++row)
    for (int before = 0; before < expert; ++before) slot += is_chosen(row, before);
  firsts_[expert] = slot;
  for (int row = first_row; row < end_row; ++row) {
    if (!is_chosen(row, expert)) continue;
    std::memcpy(gathered_.narrow(slot), x_.narrow(row), x_.num_columns * sizeof(Bf16));
    slot_of_[static_cast<std::size_t>(row) * experts_.size() + expert] = slot++;
  }
  ends_[expert] = slot;
}

void ExpertSlots::make_gates(int expert, int panel, Scratch& scratch) const {
  const int first = firsts_[expert];
  kernels_.linear(linear_task(gathered_.narrow(first), gathered_.stride, *experts_[expert].gate_up, panel,
                              num_slots(expert), Epilogue::silu_mul,
                              gates_.narrow(first) + panel * (kPanelColumns / 2), gates_.stride, scratch));
}

void ExpertSlots::make_outputs(int expert, int panel, Scratch& scratch) const {
  const int first = firsts_[expert];
  kernels_.linear(linear_task(gates_.narrow(first), gates_.stride, *experts_[expert].down, panel, num_slots(expert),
                              Epilogue::store, outputs_.wide(first) + panel * kPanelColumns, outputs_.stride, scratch));
}

void ExpertSlots::add_up(int row) const {
  float* out = out_.wide(row);
  std::fill(out, out + out_.num_columns, 0.0F);
  for (int expert = 0; expert < num_experts(); ++expert) {
    if (!is_chosen(row, expert)) continue;
    const float share = routing_.wide(row)[expert];
    const float* output = outputs_.wide(slot_of_[static_cast<std::size_t>(row) * experts_.size() + expert]);
    for (int column = 0; column < out_.num_columns; ++column) out[column] += share * output[column];
  }
}

int ExpertOperator::num_tasks(const Step& step) const {
  const auto [first, end] = step.rows(slots_->rows(), share());
  switch (phase_) {
    case ExpertPhase::gather:
      return slots_->num_experts();
    case ExpertPhase::gates:
      return slots_->num_experts() * slots_->num_gate_panels();
    case ExpertPhase::outputs:
      return slots_->num_experts() * slots_->num_output_panels();
    default:
      return end - first;
  }
}

void ExpertOperator::run(int task, const Step& step, Scratch& scratch) const {
  const int num_experts = slots_->num_experts();
  const auto [first, end] = step.rows(slots_->rows(), share());
  switch (phase_) {
    case ExpertPhase::gather:
      return slots_->gather(task, first, end);
    case ExpertPhase::gates:
      return slots_->make_gates(task % num_experts, task / num_experts, scratch);
    case ExpertPhase::outputs:
      return slots_->make_outputs(task % num_experts, task / num_experts, scratch);
    default:
      return slots_->add_up(first + task);
  }
}

}  // namespace treadle
