#include "link_sender.h"

#include <algorithm>
#include <cstring>

namespace treadle {

using std::memory_order_acquire;
using std::memory_order_release;
using std::memory_order_seq_cst;

bool LinkSender::is_open() const {
  const std::uint32_t generation = this->generation();
  return header().accepted.load(memory_order_acquire) == generation &&
         header().refused.load(memory_order_acquire) != generation;
}

Turn LinkSender::turn(bool comes) {
  if (comes) {
    waits_since_.reset();
    return Turn::comes;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!waits_since_) waits_since_ = now;
  const bool is_refused = header().refused.load(memory_order_acquire) == generation();
  if (!is_refused && now - *waits_since_ < deadline_) return Turn::waits;
  drop();
  return Turn::lost;
}

Turn LinkSender::room(const RemoteRange& range, std::uint64_t step) {
  if (range.generation != generation()) return Turn::lost;
  if (!is_open()) {
    if (num_asked_ != num_gathered_) drop();  // refused meanwhile, and lost answers are not gathered
    return Turn::lost;
  }
  const bool may_write_table =
      table_step_ == step || header().num_served.load(memory_order_acquire) == num_asked_;
  return turn(has_slot() && may_write_table);
}

void LinkSender::ask(const RemoteRange& range, std::uint64_t step, const TaskHeader& task) {
  if (table_step_ != step) {
    table_step_ = step;
    times_.begin_step(header());
    ++table_;
    write_table(range);
  }
  LinkSlot slot = this->slot();
  *slot.header = task;
  slot.header->table = table_;
  times_.asked(num_asked_);
  ask_next();
}

void LinkSender::ask_next() {
  header().num_asked.store(++num_asked_, memory_order_release);
  ring();
}

Turn LinkSender::move(const RemoteRange& range, std::uint64_t step, const Arena& arena) {
  if (move_step_ != step) {
    move_step_ = step;
    num_moves_asked_ = num_moves_made_ = 0;
  }
  if (range.generation != generation() || (num_moves_asked_ == num_moves_made_ && !is_open())) return Turn::lost;
  const std::size_t num_bytes = shape().block_bytes();
  for (; num_moves_made_ < num_moves_asked_ && has_answer(); ++num_moves_made_, settle()) {
    const RemoteMove& made = range.moves[num_moves_made_];
    if (!made.is_send) std::memcpy(arena.line(made.line), answer().block, num_bytes);
    waits_since_.reset();
  }
  for (; num_moves_asked_ < range.moves.size() && has_slot(); ++num_moves_asked_) {
    const RemoteMove& next = range.moves[num_moves_asked_];
    const LinkSlot slot = this->slot();
    *slot.header = {.kind = next.is_send ? TaskKind::put : TaskKind::call_back, .block = next.block};
    if (next.is_send) std::memcpy(slot.block, arena.line(next.line), num_bytes);
    ask_next();
  }
  return turn(num_moves_made_ == range.moves.size());
}

void LinkSender::write_table(const RemoteRange& range) const {
  const LinkTable table = memory_.table();
  *table.header = {table_, static_cast<std::int32_t>(range.starts.size()), static_cast<std::int32_t>(range.blocks.size())};
  std::copy(range.starts.begin(), range.starts.end(), table.starts);
  std::copy(range.num_rows.begin(), range.num_rows.end(), table.num_rows);
  std::copy(range.num_blocks.begin(), range.num_blocks.end(), table.num_blocks);
  std::copy(range.blocks.begin(), range.blocks.end(), table.blocks);
}

bool LinkSender::has_answer() const {
  return static_cast<std::int32_t>(header().num_served.load(memory_order_acquire) - num_gathered_) > 0;
}

Turn LinkSender::answered() {
  const bool comes = has_answer();
  times_.looked(num_gathered_, comes);
  return turn(comes);
}

void LinkSender::drop() {
  waits_since_.reset();
  num_gathered_ = num_asked_;
  header().generation.store(std::max(generation() + 1, kFirstGeneration), memory_order_release);
  ring();
}

// The receiver says that it sleeps, looks at what moved before the bell, and sleeps if the bell has not moved; so either
// it sees what moved, or it is seen to sleep.
void LinkSender::ring() const {
  header().rings.fetch_add(1, memory_order_seq_cst);
  if (header().receiver_sleeps.load(memory_order_seq_cst) != 0) wake_sleepers(header().rings);
}

void LinkSender::sleep(std::chrono::nanoseconds at_most) const {
  const std::uint32_t seen = header().num_served.load(memory_order_acquire);
  header().sender_sleeps.store(1, memory_order_seq_cst);
  const Watched watched{&header().num_served, seen};
  if (seen == num_gathered_ && header().refused.load(memory_order_seq_cst) != generation())
    sleep_on({&watched, 1}, at_most);
  header().sender_sleeps.store(0, std::memory_order_relaxed);
}

}  // namespace treadle
