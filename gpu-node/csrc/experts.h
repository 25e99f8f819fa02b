// A mixture of experts: a router's choice, and gated networks that each work on the rows that chose them.
#pragma once

#include <memory>
#include <vector>

#include "linear.h"
#include "row_operators.h"

namespace treadle {

// Softmax over the `num_chosen` largest numbers of a row, 0 for all others. Of equal numbers the first is chosen.
class Route final : public RowOperator {
 public:
  Route(Columns x, int num_chosen, Columns out) : RowOperator(out.rows), x_(x), num_chosen_(num_chosen), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  Columns x_;
  int num_chosen_;
  Columns out_;
};

struct Expert {
  const PackedWeight* gate_up;  // in halves
  const PackedWeight* down;
};

// Four operators, one behind the other: rows are gathered expert by expert, go through gates, then through outputs,
// and what a row's experts say is added up in the order of the experts: so a row's bits do not depend on the batch.
// What they hand on lies in slots: one for each row and expert that it chose, those of an expert together.
class ExpertSlots {
 public:
  ExpertSlots(const Kernels& kernels, Columns x, Columns routing, std::vector<Expert> experts, int max_rows,
              int num_chosen, Columns out);

  void gather(int expert, int first_row, int end_row);
  void make_gates(int expert, int panel, Scratch& scratch) const;
  void make_outputs(int expert, int panel, Scratch& scratch) const;
  void add_up(int row) const;

  int num_experts() const { return static_cast<int>(experts_.size()); }
  int num_gate_panels() const { return experts_[0].gate_up->num_panels; }
  int num_output_panels() const { return experts_[0].down->num_panels; }
  RowKind rows() const { return out_.rows; }

 private:
  int num_slots(int expert) const { return ends_[expert] - firsts_[expert]; }
  bool is_chosen(int row, int expert) const { return routing_.wide(row)[expert] != 0; }

  const Kernels& kernels_;
  Columns x_, routing_, out_;
  std::vector<Expert> experts_;
  std::vector<int> firsts_, ends_;  // [experts]: its slots
  std::vector<int> slot_of_;        // [rows][experts], where chosen
  Memory gathered_memory_, gates_memory_, outputs_memory_;
  Columns gathered_, gates_, outputs_;  // one row a slot
};

enum class ExpertPhase { gather, gates, outputs, sum };

class ExpertOperator final : public Operator {
 public:
  ExpertOperator(std::shared_ptr<ExpertSlots> slots, ExpertPhase phase) : slots_(std::move(slots)), phase_(phase) {}

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  std::shared_ptr<ExpertSlots> slots_;
  ExpertPhase phase_;
};

}  // namespace treadle
