// Some rows times one panel of 32 outputs. For few rows it runs at the speed of memory, for many at that of the
// multipliers: a group of rows shares each load of the weights, and its sums stay in registers.
//
// A panel of int8 is widened to bfloat16, which holds these integers exactly, on its way into the registers. The sums
// are those of the integers; each is scaled at its end.
#pragma once

#include "simd.h"
#include "widening.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kPanelVectors = kPanelColumns / kLanes;
constexpr int kMaxRows = TREADLE_ROWS;
constexpr int kLineNumbers = kLineBytes / sizeof(Bf16);

// Few rows run so far ahead of their products that the processor sees by itself what is read next. More rows fill its
// window with products: then weights are asked for into the second cache, from where they come in time (measured on
// Zen 4, of 117 billion products a second: 10 rows at 95 then 113, 6 rows at 47 then 76, of int8 at 79 then 106).
constexpr int kLeastRowsToFetch = 4;
constexpr std::ptrdiff_t kFetchBytes = 8192;

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
  const std::uint8_t* panel;
  Widening widening = {};

  TREADLE_INLINE_MEMBER Bits operator()(std::ptrdiff_t pair, int column) const {
    return widening(panel + pair * kPair * kPanelColumns, column);
  }

  TREADLE_INLINE_MEMBER void fetch(std::ptrdiff_t pair) const {
    fetch_line(panel + pair * kPair * kPanelColumns + kFetchBytes);
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

static void linear(const LinearTask& task) {
  if (task.panel == nullptr) {
    for_row_groups<kMaxRows>(LinearRows<Int8Pairs>{task, {task.int8.data}}, task.num_rows);
  } else {
    for_row_groups<kMaxRows>(LinearRows<Bf16Pairs>{task, {task.panel}}, task.num_rows);
  }
}

}  // namespace treadle::TREADLE_LEVEL
