// What adapters add to a product: of each row, x times two matrices of low rank, those of the row's adapter.
#pragma once

#include <vector>

#include "linear.h"

namespace treadle {

// Of one adapter; null where it leaves the product alone.
struct LowRank {
  const PackedWeight* shrink = nullptr;  // [rank][inputs]
  const PackedWeight* expand = nullptr;  // [outputs][rank], times the adapter's scale
};

// Two operators, one behind the other, by the kernels of all products: rows of one adapter that stand together go
// through its matrices together, and a row's bits do not depend on which those are. In between, numbers of low rank
// lie in two buffers, as they are summed and as they are rounded.
class Lora : public Operator {
 protected:
  Lora(const Kernels& kernels, std::vector<LowRank> adapters, Columns between)
      : kernels_(kernels), adapters_(std::move(adapters)), between_(between) {}

  int num_pieces(const Step& step) const { return static_cast<int>(step.adapted(between_.rows, share()).size()); }

  const Kernels& kernels_;
  std::vector<LowRank> adapters_;
  Columns between_;  // bfloat16
};

class LoraShrink final : public Lora {
 public:
  LoraShrink(const Kernels& kernels, Columns x, std::vector<LowRank> adapters, Columns sums, Columns between)
      : Lora(kernels, std::move(adapters), between), x_(x), sums_(sums) {}

  int num_tasks(const Step& step) const override { return num_pieces(step); }
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  Columns x_, sums_;
};

class LoraExpand final : public Lora {
 public:
  LoraExpand(const Kernels& kernels, std::vector<LowRank> adapters, Columns between, Columns out)
      : Lora(kernels, std::move(adapters), between), out_(out) {}

  int num_tasks(const Step& step) const override { return kParts * num_pieces(step); }
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  static constexpr int kParts = 4;  // of the panels of a piece, so that few rows are work for several threads

  Columns out_;
};

}  // namespace treadle
