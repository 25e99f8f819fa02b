// Some rows times one panel of 32 outputs. For few rows it runs at the speed of memory, for many at that of the
// multipliers: a group of rows shares each load of the weights, and its sums stay in registers.
//
// A panel of int8 is widened to bfloat16, which holds these integers exactly: for few rows on its way into the
// registers, for more once for all of them. The sums are those of the integers; each is scaled at its end.
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
constexpr std::ptrdiff_t kFetchBytes = 8192;

// Up to here, widening int8 for each group of rows costs less than storing it once for all.
constexpr int kMaxDirectRows = 2 * kMaxRows;

struct Bf16Pairs {
  const Bf16* panel;

  TREADLE_INLINE_MEMBER Bits operator()(std::ptrdiff_t pair, int column) const {
    return load<Bits>(panel + pair * kPair * kPanelColumns + column * kPair * kLanes);
  }

  TREADLE_INLINE_MEMBER void fetch(std::ptrdiff_t pair) const {
    const Bf16* ahead = panel + pair * kPair * kPanelColumns + kFetchBytes / sizeof(Bf16);
    for (int line = 0; line < kPair * kPanelColumns; line += kLineNumbers) fetch_line(ahead + line);
  }
};

struct Int8Pairs {
  const std::int8_t* panel;

  TREADLE_INLINE_MEMBER Bits operator()(std::ptrdiff_t pair, int column) const {
    const std::int8_t* even = panel + pair * kPair * kPanelColumns + column * kLanes;
    return widened(even) >> 16 | widened(even + kPanelColumns);
  }

  TREADLE_INLINE_MEMBER void fetch(std::ptrdiff_t pair) const {
    fetch_line(panel + pair * kPair * kPanelColumns + kFetchBytes);
  }

  // The upper half of a float is its bfloat16, and the lower half of a small integer's is empty.
  static TREADLE_INLINE_MEMBER Bits widened(const std::int8_t* from) {
    return bit_cast<Bits>(__builtin_convertvector(load_int8(from), Floats));
  }
};

TREADLE_INLINE void finish(const LinearTask& task, int row, const Floats (&of)[kPanelVectors]) {
  Floats sums[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) sums[v] = of[v];
  if (task.int8.data != nullptr) {
    for (int v = 0; v < kPanelVectors; ++v) {
      Floats scaled = of[v] * load<Floats>(task.int8.scales + v * kLanes);
      asm("" : "+m"(scaled));  // rounded here on every path: what is added later must not be fused with this product
      sums[v] = scaled;
    }
  }
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

template <typename Panel>
struct LinearRows {
  const LinearTask& task;
  Panel panel;

  template <int R>
  TREADLE_INLINE_MEMBER void run(int first_row) const {
    Floats sums[R][kPanelVectors];
    if (R >= kLeastRowsToFetch && first_row == 0) {
      const auto fetch = [&](std::ptrdiff_t pair) __attribute__((always_inline)) { panel.fetch(pair); };
      multiply_panels(x(first_row), task.x_stride, panel, task.num_pairs, sums, fetch);
    } else {
      multiply_panels(x(first_row), task.x_stride, panel, task.num_pairs, sums);
    }
    for (int r = 0; r < R; ++r) finish(task, first_row + r, sums[r]);
  }

  TREADLE_INLINE_MEMBER const Bf16* x(int row) const { return task.x + row * task.x_stride; }
};

// The task with its int8 panel widened into its scratch.
static LinearTask widened(const LinearTask& task) {
  const Int8Pairs pairs{task.int8.data};
  for (std::ptrdiff_t pair = 0; pair < task.num_pairs; ++pair)
    for (int v = 0; v < kPanelVectors; ++v)
      store(task.int8.scratch + pair * kPair * kPanelColumns + v * kPair * kLanes, pairs(pair, v));
  LinearTask wide = task;
  wide.panel = task.int8.scratch;
  return wide;
}

static void linear(const LinearTask& task) {
  if (task.panel == nullptr && task.num_rows <= kMaxDirectRows) {
    for_row_groups<kMaxRows>(LinearRows<Int8Pairs>{task, {task.int8.data}}, task.num_rows);
    return;
  }
  const LinearTask wide = task.panel == nullptr ? widened(task) : task;
  for_row_groups<kMaxRows>(LinearRows<Bf16Pairs>{wide, {wide.panel}}, wide.num_rows);
}

}  // namespace treadle::TREADLE_LEVEL
