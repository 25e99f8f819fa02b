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

void SegmentEmbedding::run_row(int row, const Step& step) const {
  const auto ids = step.token_ids.begin();
  const auto first = ids + step.first_row_of(row), own = ids + row;
  const bool is_behind = separator_ >= 0 && std::find(first, own, separator_) != own;
  unpack_row(table_, is_behind ? 1 : 0, out_.wide(row));
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

void GatedActivation::run_row(int row, const Step&) const {
  kernel_(gate_.wide(row), up_.wide(row), out_.num_columns, out_.out(row));
}

void Add::run_row(int row, const Step&) const {
  kernels_.add(a_.wide(row), b_.wide(row), out_.num_columns, out_.wide(row));
}

void Round::run_row(int row, const Step&) const { kernels_.round(x_.wide(row), x_.num_columns, out_.narrow(row)); }

namespace {

void check_selection(Columns x, Columns out) {
  if (x.type != out.type || x.num_columns != out.num_columns)
    throw std::invalid_argument("rows that are selected keep their type and their columns");
  if (x.rows != RowKind::tokens || out.rows != RowKind::draws)
    throw std::invalid_argument("rows of draws are selected from rows of tokens");
}

void copy_row(Columns x, int from, Columns out, int to) {
  if (x.type == Type::float32)
    std::copy_n(x.wide(from), x.num_columns, out.wide(to));
  else
    std::copy_n(x.narrow(from), x.num_columns, out.narrow(to));
}

}  // namespace

SelectDraws::SelectDraws(Columns x, Columns out) : RowOperator(RowKind::draws), x_(x), out_(out) {
  check_selection(x, out);
}

void SelectDraws::run_row(int row, const Step& step) const { copy_row(x_, step.draw_rows[row], out_, row); }

SelectFirst::SelectFirst(Columns x, Columns out) : RowOperator(RowKind::draws), x_(x), out_(out) {
  check_selection(x, out);
}

void SelectFirst::run_row(int row, const Step& step) const {
  copy_row(x_, step.first_row_of(step.draw_rows[row]), out_, row);
}

MeanPool::MeanPool(Columns x, Columns out) : RowOperator(RowKind::draws), x_(x), out_(out) {
  check_selection(x, out);
  if (x.type != Type::float32) throw std::invalid_argument("means are taken of float32");
}

void MeanPool::run_row(int row, const Step& step) const {
  const int last = step.draw_rows[row], first = step.first_row_of(last);
  float* sums = out_.wide(row);
  std::copy_n(x_.wide(first), x_.num_columns, sums);
  for (int from = first + 1; from <= last; ++from) {
    const float* values = x_.wide(from);
    for (int column = 0; column < x_.num_columns; ++column) sums[column] += values[column];
  }
  const float count = static_cast<float>(last - first + 1);
  for (int column = 0; column < x_.num_columns; ++column) sums[column] /= count;
}

}  // namespace treadle
