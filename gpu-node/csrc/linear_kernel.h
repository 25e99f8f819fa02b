// Some rows times one panel of 32 outputs. For few rows it runs at the speed of memory, for many at that of the
// multipliers: a group of rows shares each load of the weights, and its sums stay in registers.
#pragma once

#include "simd.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kPanelVectors = kPanelColumns / kLanes;
constexpr int kMaxRows = TREADLE_ROWS;
constexpr int kLineNumbers = kLineBytes / sizeof(Bf16);

// Few rows run so far ahead of their products that the processor sees by itself what is read next. More rows fill its
// window with products: then weights are asked for into the second cache, from where they come in time (measured:
// 10 rows at 95 then 113 of 117 billion products a second, on Zen 4).
constexpr int kLeastRowsToFetch = 7;
constexpr std::ptrdiff_t kFetchNumbers = 4096;

struct LinearRows {
  const LinearTask& task;

  template <int R>
  TREADLE_INLINE_MEMBER void run(int first_row) const {
    Floats sums[R][kPanelVectors];
    if (R >= kLeastRowsToFetch && first_row == 0) {
      // inlined by force: a call that only prefetches counts as one without effect, and is left out
      const auto fetch = [&](std::ptrdiff_t pair) __attribute__((always_inline)) {
        const Bf16* ahead = task.panel + kFetchNumbers + pair * kPair * kPanelColumns;
        for (int line = 0; line < kPair * kPanelColumns; line += kLineNumbers) __builtin_prefetch(ahead + line, 0, 2);
      };
      multiply<R>(first_row, sums, fetch);
    } else {
      multiply<R>(first_row, sums, NoFetch{});
    }
    for (int r = 0; r < R; ++r) finish(first_row + r, sums[r]);
  }

  template <int R, typename Fetch>
  TREADLE_INLINE_MEMBER void multiply(int first_row, Floats (&sums)[R][kPanelVectors], const Fetch& fetch) const {
    multiply_panels<R, 1, kPanelVectors>(task.x + first_row * task.x_stride, task.x_stride, &task.panel,
                                         kPair * kPanelColumns, task.num_pairs, sums, fetch);
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
