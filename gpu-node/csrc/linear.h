// x times a packed weight, cut into tasks of some panels and some rows.
#pragma once

#include "buffer.h"
#include "operator.h"

namespace treadle {

// `num_rows` rows of x times a panel of a weight, whichever type it has.
LinearTask linear_task(const Bf16* x, std::ptrdiff_t x_stride, const PackedWeight& weight, int panel, int num_rows,
                       Epilogue epilogue, void* out, std::ptrdiff_t out_stride, Scratch& scratch);

class Linear final : public Operator {
 public:
  Linear(const Kernels& kernels, Columns x, const PackedWeight& weight, Epilogue epilogue, Columns out)
      : kernels_(kernels), x_(x), weight_(weight), epilogue_(epilogue), out_(out) {}

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  // Enough rows that a panel is rarely read again, few enough that their inputs stay in a core's second cache.
  static constexpr int kMaxRowsTogether = 240;
  // With few rows a task is a piece of memory to read, and the first of it always comes late (measured:
  // tasks of 37 KB read at 34 GB/s, tasks of 111 KB at 36 of the machine's 37).
  static constexpr std::ptrdiff_t kMinTaskBytes = 96 << 10;
  static constexpr int kFewRows = 16;

  int num_row_parts(const Step& step) const;
  int panels_together(const Step& step) const;

  const Kernels& kernels_;
  Columns x_;
  const PackedWeight& weight_;
  Epilogue epilogue_;
  Columns out_;
};

}  // namespace treadle
