// The receiver's end of a link: a task's keys and values go into this device's own blocks, of the sender's shape, then
// its rows attend to the blocks that the task names. `tests/gpu_node/offload/link_model.py` is the same in steps.
#pragma once

#include <vector>

#include "attention.h"
#include "link.h"
#include "operator.h"

namespace treadle {

class LinkReceiver {
 public:
  // Blocks lie in pages of `arena`, none of them lent at first. The arena outlives it.
  LinkReceiver(LinkMemory memory, const Kernels& kernels, const Arena& arena);

  // --- while its device does not serve (see Receivers::lend) ----------------------------------------------------------
  void lend(std::int32_t page, bool is_lent) {
    is_lent_.at(page) = is_lent;
    table_ = 0;  // it is looked at again
  }
  // Serves nothing more of this generation: the sender loses what is under way at once.
  void refuse();

  // --- a device's threads, one at a time ------------------------------------------------------------------------------
  // Whether a task waits that can be served; it is taken.
  bool look();
  void finish();
  void says_it_sleeps(bool sleeps) const;
  bool has_news() const;
  const Word& bell() const { return header().rings; }
  bool attends() const { return task_.kind == TaskKind::attend; }

  // --- any thread: what the sender says of itself, 0 while it does not know -------------------------------------------
  std::uint32_t local_ns() const { return header().local_ns.load(std::memory_order_relaxed); }
  std::uint32_t step_ns() const { return header().step_ns.load(std::memory_order_relaxed); }

  // --- all of them together: phases, one after the other, each of tasks in any order ----------------------------------
  static constexpr int kNumPhases = 2;
  int num_tasks(int phase) const;
  void run(int phase, int task, Scratch& scratch) const;

 private:
  LinkHeader& header() const { return memory_.header(); }
  bool take_task();
  bool take_rows();
  void move_layer(int layer) const;
  bool take_table();
  bool may_use(std::int32_t block) const;
  void write_keys(int row) const;

  LinkMemory memory_;
  const Kernels& kernels_;
  Cache cache_;
  std::vector<bool> is_lent_;  // [pages]
  int rows_together_;
  std::uint32_t generation_ = kNoGeneration;  // that it serves
  std::uint32_t next_ = kFirstTask;
  bool refuses_ = false;  // all else of this generation
  // the task, and the table that it was asked with
  TaskHeader task_{};
  LinkSlot slot_{};
  std::byte* block_ = nullptr;  // that moves
  std::uint32_t table_ = 0;
  int first_group_ = 0, num_groups_ = 0;
  std::vector<RowGroup> groups_;  // of the table, by their rows
  std::vector<std::int32_t> positions_, row_lines_, block_lines_;
};

}  // namespace treadle
