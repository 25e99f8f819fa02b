#include "link_receiver.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace treadle {

using std::memory_order_acquire;
using std::memory_order_release;
using std::memory_order_seq_cst;

namespace {

constexpr int kRowsTogether = 4;

}  // namespace

LinkReceiver::LinkReceiver(LinkMemory memory, const Kernels& kernels, const Arena& arena)
    : memory_(std::move(memory)),
      kernels_(kernels),
      cache_(memory_.shape().cache(0), arena, arena),
      is_lent_(arena.num_pages()),
      rows_together_(std::max(1, kMaxQueries / (memory_.shape().num_heads / memory_.shape().num_kv_heads))) {}

void LinkReceiver::refuse() {
  refuses_ = true;
  header().refused.store(generation_, memory_order_seq_cst);
  if (header().sender_sleeps.load(memory_order_seq_cst) != 0) wake_sleepers(header().num_served);
}

bool LinkReceiver::has_news() const {
  return header().generation.load(memory_order_acquire) != generation_ ||
         (!refuses_ && header().num_asked.load(memory_order_acquire) != next_);
}

bool LinkReceiver::look() {
  const std::uint32_t generation = header().generation.load(memory_order_acquire);
  const std::uint32_t asked = header().num_asked.load(memory_order_acquire);
  if (generation != generation_) {
    // the sender asks for nothing in a generation before it is accepted, so nothing is forgotten but what it gave up
    generation_ = generation;
    next_ = asked;
    table_ = 0;
    refuses_ = false;
    header().num_served.store(asked, memory_order_release);
    header().accepted.store(generation, memory_order_release);
    return false;
  }
  if (refuses_ || asked == next_) return false;
  if (take_task()) return true;
  refuse();
  return false;
}

// Of the shared memory everything is read once, then checked: the sender is believed nothing that could hurt others.
bool LinkReceiver::take_task() {
  slot_ = memory_.slot(next_);
  task_ = *slot_.header;
  switch (task_.kind) {
    case TaskKind::attend:
      return take_rows();
    case TaskKind::put:
    case TaskKind::call_back:
      if (!may_use(task_.block)) return false;
      block_ = cache_.arena().line(cache_.places().line(task_.block));
      return true;
  }
  return false;
}

bool LinkReceiver::take_rows() {
  const LinkShape& shape = memory_.shape();
  if (task_.layer < 0 || task_.layer >= shape.num_layers || task_.window < 1) return false;
  if (task_.table != table_ && !take_table()) return false;
  if (task_.first_row < 0 || task_.first_row >= task_.end_row) return false;
  if (task_.end_row > static_cast<std::int32_t>(positions_.size())) return false;
  const auto begins = [&](const RowGroup& group, std::int32_t row) { return group.first_row < row; };
  const auto first = std::lower_bound(groups_.begin(), groups_.end(), task_.first_row, begins);
  const auto end = std::lower_bound(first, groups_.end(), task_.end_row, begins);
  first_group_ = static_cast<int>(first - groups_.begin());
  num_groups_ = static_cast<int>(end - first);
  return first != end && first->first_row == task_.first_row &&
         (end - 1)->first_row + (end - 1)->num_rows == task_.end_row;
}

bool LinkReceiver::take_table() {
  const LinkShape& shape = memory_.shape();
  const LinkTable table = memory_.table();
  const TableHeader header = *table.header;
  table_ = 0;
  groups_.clear(), positions_.clear(), row_lines_.clear(), block_lines_.clear();
  if (header.version != task_.table || header.num_sequences < 1 || header.num_sequences > shape.max_sequences ||
      header.num_blocks < 1 || header.num_blocks > shape.max_blocks)
    return false;
  for (int i = 0; i < header.num_blocks; ++i) {
    const std::int32_t block = table.blocks[i];
    if (!may_use(block)) return false;
    block_lines_.push_back(cache_.places().line(block));
  }
  std::int64_t num_rows = 0, num_table = 0;
  for (int i = 0; i < header.num_sequences; ++i) {
    const std::int32_t start = table.starts[i], rows = table.num_rows[i], blocks = table.num_blocks[i];
    if (start < 0 || rows < 1 || blocks < 1) return false;
    if (num_rows + rows > shape.max_rows || num_table + blocks > header.num_blocks) return false;
    if ((std::int64_t{start} + rows + shape.block_size - 1) / shape.block_size > blocks) return false;
    for (int done = 0; done < rows; done += rows_together_)
      groups_.push_back({static_cast<std::int32_t>(num_rows) + done, std::min(rows_together_, rows - done), start + done,
                         static_cast<std::int32_t>(num_table)});
    for (std::int32_t position = start; position < start + rows; ++position) {
      positions_.push_back(position);
      row_lines_.push_back(block_lines_[num_table + position / shape.block_size]);
    }
    num_rows += rows;
    num_table += blocks;
  }
  table_ = header.version;
  return true;
}

bool LinkReceiver::may_use(std::int32_t block) const {
  return cache_.places().has(block) && is_lent_[cache_.places().page(block)];
}

int LinkReceiver::num_tasks(int phase) const {
  if (task_.kind != TaskKind::attend) return phase == 0 ? memory_.shape().num_layers : 0;
  if (phase == 0) return (task_.end_row - task_.first_row + kRowsTogether - 1) / kRowsTogether;
  return num_groups_ * memory_.shape().num_kv_heads;
}

void LinkReceiver::run(int phase, int task, Scratch& scratch) const {
  if (task_.kind != TaskKind::attend) return move_layer(task);
  if (phase == 0) {
    const int first = task_.first_row + task * kRowsTogether;
    for (int row = first; row < std::min(first + kRowsTogether, task_.end_row); ++row) write_keys(row);
    return;
  }
  const LinkShape& shape = memory_.shape();
  const RowGroup& group = groups_[first_group_ + task / shape.num_kv_heads];
  attend(kernels_, cache_, task_.layer, Sight{task_.window}, shape.num_heads / shape.num_kv_heads, group,
         task % shape.num_kv_heads, slot_.q + group.first_row * slot_.q_stride, slot_.q_stride,
         block_lines_.data() + group.table, {slot_.out + group.first_row * slot_.q_stride, nullptr}, slot_.q_stride, scratch);
}

void LinkReceiver::write_keys(int row) const {
  const LinkShape& shape = memory_.shape();
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    const std::ptrdiff_t at = row * slot_.kv_stride + std::ptrdiff_t{head} * shape.head_dim;
    cache_.put(task_.layer, row_lines_[row], head, positions_[row] % shape.block_size, slot_.k + at, slot_.v + at);
  }
}

void LinkReceiver::move_layer(int layer) const {
  const std::size_t num_bytes = memory_.shape().layer_bytes();
  std::byte *here = block_ + layer * num_bytes, *there = slot_.block + layer * num_bytes;
  const bool comes = task_.kind == TaskKind::put;
  std::memcpy(comes ? here : there, comes ? there : here, num_bytes);
}

void LinkReceiver::finish() {
  header().num_served.store(++next_, memory_order_seq_cst);
  if (header().sender_sleeps.load(memory_order_seq_cst) != 0) wake_sleepers(header().num_served);
}

void LinkReceiver::says_it_sleeps(bool sleeps) const { header().receiver_sleeps.store(sleeps, memory_order_seq_cst); }

}  // namespace treadle
