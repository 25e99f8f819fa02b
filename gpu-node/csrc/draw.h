// The last operator of a program: one token for each draw, and what the draw wants to know beside it.
#pragma once

#include "buffer.h"
#include "operator.h"

namespace treadle {

class Draw final : public Operator {
 public:
  Draw(const Kernels& kernels, Columns logits) : kernels_(kernels), logits_(logits) {}

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  void draw(int index, const Step& step, SamplingScratch& scratch) const;

  const Kernels& kernels_;
  Columns logits_;
};

}  // namespace treadle
