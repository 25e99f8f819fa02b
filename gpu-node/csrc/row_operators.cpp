#include "row_operators.h"

#include <algorithm>
#include <stdexcept>

namespace treadle {

int RowOperator::num_tasks(const Step& step) const {
  const auto [first, end] = step.rows(rows_, share());
  return (end - first + kRowsTogether - 1) / kRowsTogether;
}

void RowOperator::run(int task, const Step& step, Scratch&) const {
  const auto [first, end] = step.rows(rows_, share());
  const int end_of_task = std::min(first + (task + 1) * kRowsTogether, end);
  for (int row = first + task * kRowsTogether; row < end_of_task; ++row) run_row(row, step);
}

void Embedding::run_row(int row, const Step& step) const {
  const int index = index_ == Index::token_ids ? step.token(step.token_ids[row]) : step.positions[row];
  unpack_row(table_, index, out_.wide(row));
}

void RmsNorm::run_row(int row, const Step&) const {
  kernels_.rms_norm(x_.wide(row), weight_, epsilon_, x_.num_columns, out_.out(row));
}

void LayerNorm::run_row(int row, const Step&) const {
  kernels_.layer_norm(x_.wide(row), weight_, bias_, epsilon_, x_.num_columns, out_.out(row));
}

void HeadNorm::run_row(int row, const Step&) const {
  float normed[kMaxHeadDim + kPanelColumns];  // a vector may run over the end, where the next head begins
  for (float* head = x_.wide(row); head != x_.wide(row) + x_.num_columns; head += head_dim_) {
    kernels_.rms_norm(head, weight_, epsilon_, head_dim_, {normed, nullptr});
    std::copy(normed, normed + head_dim_, head);
  }
}

void AddBias::run_row(int row, const Step&) const {
  kernels_.add(x_.wide(row), bias_, x_.num_columns, x_.wide(row));
}

void Activation::run_row(int row, const Step&) const { kernel_(x_.wide(row), x_.num_columns, out_.out(row)); }

void SiluMul::run_row(int row, const Step&) const {
  kernels_.silu_mul(gate_.wide(row), up_.wide(row), out_.num_columns, out_.out(row));
}

void Add::run_row(int row, const Step&) const {
  kernels_.add(a_.wide(row), b_.wide(row), out_.num_columns, out_.wide(row));
}

void Round::run_row(int row, const Step&) const { kernels_.round(x_.wide(row), x_.num_columns, out_.narrow(row)); }

SelectDraws::SelectDraws(Columns x, Columns out) : RowOperator(RowKind::draws), x_(x), out_(out) {
  if (x.type != out.type || x.num_columns != out.num_columns)
    throw std::invalid_argument("rows that are selected keep their type and their columns");
  if (x.rows != RowKind::tokens || out.rows != RowKind::draws)
    throw std::invalid_argument("rows of draws are selected from rows of tokens");
}

void SelectDraws::run_row(int row, const Step& step) const {
  const int from = step.draw_rows[row];
  if (x_.type == Type::float32)
    std::copy_n(x_.wide(from), x_.num_columns, out_.wide(row));
  else
    std::copy_n(x_.narrow(from), x_.num_columns, out_.narrow(row));
}

}  // namespace treadle
