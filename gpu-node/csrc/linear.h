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
  bool is_splittable() const override { return true; }
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  // Enough rows that a panel is rarely read again, few enough that their inputs stay in a core's second cache.
  static constexpr int kMaxRowsTogether = 240;
  // With few rows a task is a piece of memory to read, and the first of it always comes late, by 0.6 us on Zen 4: one
  // thread reads tasks of 18 KB at 12 GB/s, of 55 KB at 21 and of 110 KB at 24. (One panel a task costs 5 % at 32 rows,
  // and from 64 on as little as what threads wait for the last of larger tasks.)
  static constexpr std::ptrdiff_t kTaskBytes = 96 << 10;
  static constexpr int kFewRows = 64;
  // A small weight is few tasks, and a thread that has one less waits: so 2 or 4 threads have equally many.
  static constexpr int kTasksMultiple = 4;

  static int num_row_parts(int num_rows);
  int num_panel_parts(int num_rows) const;

  const Kernels& kernels_;
  Columns x_;
  const PackedWeight& weight_;
  Epilogue epilogue_;
  Columns out_;
};

}  // namespace treadle
