// A step's rows that lie on another device: sent there behind the local ones, and gathered (Weaver, ATC'25, §3).
#pragma once

#include <utility>

#include "buffer.h"
#include "link_sender.h"
#include "operator.h"

namespace treadle {

// Of a step's remote rows, those in a share of it; each link that has any gets a task.
class OffloadOperator : public Operator {
 public:
  int num_tasks(const Step& step) const final;
  void run(int task, const Step& step, Scratch& scratch) const final;
  bool waits(const Step& step) const final { return !step.remotes.empty(); }
  bool is_ready(const Step& step) const final;
  void sleep(const Step& step, std::chrono::nanoseconds at_most) const final;
  bool is_worth_asking(const Step& step) const final;
  void finish(const Step& step) const final;

 protected:
  // A row of the step, and its place in what lies behind the link.
  virtual void move_row(int row, int place, const RemoteRange& range) const = 0;
  virtual Turn turn(const Step& step, const RemoteRange& range) const = 0;
  virtual bool has_come(const RemoteRange&) const { return true; }
  // All rows are moved: [first, end) of what lies behind the link.
  virtual void end(const Step& step, const RemoteRange& range, int first, int end) const = 0;

 private:
  std::pair<int, int> rows(const Step& step) const;
  // Calls `body` with each range that has rows of the share and is not lost, and with these rows.
  template <typename Body>
  void for_ranges(const Step& step, const Body& body) const;
};

// Queries, keys and values of rows into their links' slots; then asks for the rows' attention.
class Send final : public OffloadOperator {
 public:
  Send(const Kernels& kernels, Columns q, Columns k, Columns v, int layer, int window)
      : kernels_(kernels), q_(q), k_(k), v_(v), layer_(layer), window_(window) {}

 private:
  void move_row(int row, int place, const RemoteRange& range) const override;
  Turn turn(const Step& step, const RemoteRange& range) const override;
  void end(const Step& step, const RemoteRange& range, int first, int end) const override;

  const Kernels& kernels_;
  Columns q_, k_, v_;
  int layer_, window_;
};

// Blocks to other devices, then those that come back, behind all other moves of a step and before its rows. One thread
// makes the moves while it waits: there is a copy of each on the other side.
class MoveRemoteBlocks final : public Operator {
 public:
  explicit MoveRemoteBlocks(const Arena& arena) : arena_(arena) {}

  int num_tasks(const Step&) const override { return 0; }
  void run(int, const Step&, Scratch&) const override {}
  bool waits(const Step& step) const override;
  bool is_ready(const Step& step) const override;
  void sleep(const Step& step, std::chrono::nanoseconds at_most) const override;

 private:
  const Arena& arena_;
};

// The answers to the oldest task that is not gathered yet, into its rows; zeros where they are lost.
class Gather final : public OffloadOperator {
 public:
  Gather(const Kernels& kernels, Columns out) : kernels_(kernels), out_(out) {}

 private:
  void move_row(int row, int place, const RemoteRange& range) const override;
  Turn turn(const Step& step, const RemoteRange& range) const override;
  void end(const Step& step, const RemoteRange& range, int first, int end) const override;
  bool has_come(const RemoteRange& range) const override { return range.link->has_answer(); }

  const Kernels& kernels_;
  Columns out_;
};

}  // namespace treadle
