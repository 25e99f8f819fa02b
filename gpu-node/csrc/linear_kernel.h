// Some rows times one panel of 32 outputs. For few rows it runs at the speed of memory, for many at that of the
// multipliers: a group of rows shares each load of the weights, and its sums stay in registers.
#pragma once

#include "simd.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kPanelVectors = kPanelColumns / kLanes;
constexpr int kMaxRows = TREADLE_ROWS;

struct LinearRows {
  const LinearTask& task;

  template <int R>
  TREADLE_INLINE_MEMBER void run(int first_row) const {
    Floats sums[R][kPanelVectors];
    multiply_panels<R, 1, kPanelVectors>(task.x + first_row * task.x_stride, task.x_stride, &task.panel,
                                         kPair * kPanelColumns, task.num_pairs, sums);
    for (int r = 0; r < R; ++r) finish(first_row + r, sums[r]);
  }

  TREADLE_INLINE_MEMBER void finish(int row, const Floats (&sums)[kPanelVectors]) const {
    const std::ptrdiff_t offset = row * task.out_stride;
    if (task.epilogue == Epilogue::silu_mul) {
      Bf16* out = static_cast<Bf16*>(task.out) + offset;
      constexpr int kHalf = kPanelVectors / 2;
      for (int v = 0; v < kHalf; ++v) store_bf16(out + v * kLanes, silu(sums[v]) * sums[v + kHalf]);
      return;
    }
    float* out = static_cast<float*>(task.out) + offset;
    for (int v = 0; v < kPanelVectors; ++v) {
      const Floats before = task.epilogue == Epilogue::add ? load<Floats>(out + v * kLanes) : Floats{};
      store(out + v * kLanes, task.epilogue == Epilogue::add ? before + sums[v] : sums[v]);
    }
  }
};

static void linear(const LinearTask& task) { for_row_groups<kMaxRows>(LinearRows{task}, task.num_rows); }

}  // namespace treadle::TREADLE_LEVEL
