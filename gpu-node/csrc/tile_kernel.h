// The linear kernel on the matrix unit (AMX): sums of 32 rows and 32 outputs stay in four tiles.
//
// A panel's pairs are what the unit wants for its second operand as they lie in memory: 16 pairs by 16 outputs a tile.
#pragma once

#include <initializer_list>

#include "linear_kernel.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kTileRows = 16;
constexpr int kTilePairs = 16;
constexpr int kTileBytes = 64;  // a row of any tile: 16 floats, or 16 pairs

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t num_rows[16] = {};
};

// Tiles 0 to 3: sums, two for each half of the rows; 4 and 5: inputs of both halves; 6 and 7: weights.
inline TileShapes tile_shapes(int first_half, int second_half) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.row_bytes[tile] = kTileBytes;
  for (int tile : {0, 1, 4}) shapes.num_rows[tile] = static_cast<std::uint8_t>(first_half);
  for (int tile : {2, 3, 5}) shapes.num_rows[tile] = static_cast<std::uint8_t>(second_half > 0 ? second_half : 1);
  for (int tile : {6, 7}) shapes.num_rows[tile] = kTilePairs;
  return shapes;
}

// The task with its int8 panel widened into its scratch: a tile is loaded from memory.
static LinearTask widened(const LinearTask& task) {
  const Int8Pairs pairs{task.int8.data};
  for (std::ptrdiff_t pair = 0; pair < task.num_pairs; ++pair)
    for (int v = 0; v < kPanelVectors; ++v)
      store(task.int8.scratch + pair * kPair * kPanelColumns + v * kPair * kLanes, pairs(pair, v));
  LinearTask wide = task;
  wide.panel = task.int8.scratch;
  return wide;
}

template <bool Both>
TREADLE_INLINE void multiply_tiles(const LinearTask& task, const Bf16* x, float* sums) {
  const std::ptrdiff_t x_bytes = task.x_stride * static_cast<std::ptrdiff_t>(sizeof(Bf16));
  constexpr std::ptrdiff_t kPairBytes = kPair * kPanelColumns * sizeof(Bf16);
  constexpr std::ptrdiff_t kSumBytes = kPanelColumns * sizeof(float);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Both) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::ptrdiff_t pair = 0; pair < task.num_pairs; pair += kTilePairs) {
    const Bf16* weights = task.panel + pair * kPair * kPanelColumns;
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(7, weights + kPanelColumns, kPairBytes);
    _tile_loadd(4, x + kPair * pair, x_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (Both) {
      _tile_loadd(5, x + kTileRows * task.x_stride + kPair * pair, x_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kSumBytes);
  _tile_stored(1, sums + kPanelColumns / 2, kSumBytes);
  if constexpr (Both) {
    _tile_stored(2, sums + kTileRows * kPanelColumns, kSumBytes);
    _tile_stored(3, sums + kTileRows * kPanelColumns + kPanelColumns / 2, kSumBytes);
  }
}

static void tile_linear(const LinearTask& task) {
  if (task.num_pairs % kTilePairs != 0) return linear(task);
  if (task.panel == nullptr) return tile_linear(widened(task));
  alignas(64) float sums[2 * kTileRows * kPanelColumns];
  for (int first = 0; first < task.num_rows; first += 2 * kTileRows) {
    const int left = task.num_rows - first < 2 * kTileRows ? task.num_rows - first : 2 * kTileRows;
    const bool both = left > kTileRows;
    const TileShapes shapes = tile_shapes(both ? kTileRows : left, left - kTileRows);
    if (first == 0 || left < 2 * kTileRows) _tile_loadconfig(&shapes);
    const Bf16* x = task.x + first * task.x_stride;
    if (both) {
      multiply_tiles<true>(task, x, sums);
    } else {
      multiply_tiles<false>(task, x, sums);
    }
    for (int row = 0; row < left; ++row) {
      const float* from = sums + row * kPanelColumns;
      const Floats vectors[kPanelVectors] = {load<Floats>(from), load<Floats>(from + kLanes)};
      finish(task, first + row, vectors);
    }
  }
  _tile_release();
}

}  // namespace treadle::TREADLE_LEVEL
