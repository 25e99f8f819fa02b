// The sender's end of a link. `tests/gpu_node/offload/link_model.py` is the same in steps that a search can order.
#pragma once

#include <chrono>
#include <optional>

#include "link.h"
#include "sender_times.h"

namespace treadle {

struct RemoteRange;

enum class Turn { comes, waits, lost };

class LinkSender {
 public:
  LinkSender(LinkMemory memory, std::chrono::nanoseconds deadline) : memory_(std::move(memory)), deadline_(deadline) {}

  const LinkShape& shape() const { return memory_.shape(); }

  // --- the thread that plans steps ------------------------------------------------------------------------------------
  // What a step is planned in. Keys and values that were written in another generation count as lost.
  std::uint32_t generation() const { return header().generation.load(std::memory_order_acquire); }
  // Whether the receiver serves this generation.
  bool is_open() const;

  // --- a device's threads, one at a time ------------------------------------------------------------------------------
  // Whether the range's rows may be written into the slot.
  Turn room(const RemoteRange& range, std::uint64_t step);
  LinkSlot slot() const { return memory_.slot(num_asked_); }
  // The rows are written: asks for their attention.
  void ask(const RemoteRange& range, std::uint64_t step, const TaskHeader& task);
  // Goes on with the blocks that move in a step, as far as there are slots and answers: whether all have.
  Turn move(const RemoteRange& range, std::uint64_t step, const Arena& arena);
  // Whether the answer to the oldest task is there. What has missed its deadline is lost, and all else under way with it.
  Turn answered();
  bool has_answer() const;
  LinkSlot answer() const { return memory_.slot(num_gathered_); }
  void settle() { ++num_gathered_; }
  const SenderTimes& times() const { return times_; }
  // Until the receiver moves, or `at_most`.
  void sleep(std::chrono::nanoseconds at_most) const;

 private:
  LinkHeader& header() const { return memory_.header(); }
  Turn turn(bool comes);
  void drop();
  void ring() const;
  void write_table(const RemoteRange& range) const;
  bool has_slot() const { return num_asked_ - num_gathered_ < static_cast<std::uint32_t>(shape().num_slots); }
  void ask_next();

  LinkMemory memory_;
  std::chrono::nanoseconds deadline_;
  std::uint32_t num_asked_ = kFirstTask;
  std::uint32_t num_gathered_ = kFirstTask;
  std::uint32_t table_ = 0;       // its version
  std::uint64_t table_step_ = 0;  // the step that it is of
  std::uint64_t move_step_ = 0;   // the step whose blocks are moved
  std::size_t num_moves_asked_ = 0, num_moves_made_ = 0;
  std::optional<std::chrono::steady_clock::time_point> waits_since_;
  SenderTimes times_;
};

}  // namespace treadle
