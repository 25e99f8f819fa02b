// Attention over paged keys and values, with a running softmax (FlashAttention, 2022) over tiles of the context.
//
// The queries of a task are rows times the heads that share one KV head: keys and values are read once for all of them.
// Tiles begin at multiples of kContextTile positions of the sequence, so a row's sums are made in the same order for
// any block size, any chunk and any neighbours.
#pragma once

#include "linear_kernel.h"
#include "row_kernels.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kKeyVectors = kKeyColumns / kLanes;
constexpr int kTilePanels = kContextTile / kKeyColumns;
constexpr int kScoreRows = TREADLE_DOT ? 6 : 1;  // whose products with all panels of a tile fit into the registers
constexpr int kTileVectors = kContextTile / kLanes;
constexpr int kValueVectors = 2;

// One task's running state, laid out in its scratch.
struct Attention {
  const AttentionTask& task;
  int num_queries, padded_dim;
  Bf16* queries;      // [queries][padded_dim]
  float* scores;      // [queries][kContextTile], in powers of 2
  Bf16* weights;      // [queries][kContextTile]
  float* sums;        // [queries][padded_dim]: values weighted so far
  float* most;        // [queries]: largest score so far
  float* weight_sums; // [queries]: so far
  Bf16* gathered;     // [padded_dim / 2][kKeyColumns][2]: keys that do not lie together in the cache
  const Bf16* values[kContextTile];  // row of each position of the tile

  explicit Attention(const AttentionTask& of)
      : task(of), num_queries(of.num_rows * of.num_heads), padded_dim(padded_head_dim(of.cache.head_dim)) {
    float* next = task.scratch;
    sums = next, next += num_queries * padded_dim;
    scores = next, next += num_queries * kContextTile;
    queries = reinterpret_cast<Bf16*>(next), next += num_queries * padded_dim / 2;
    weights = reinterpret_cast<Bf16*>(next), next += num_queries * kContextTile / 2;
    gathered = reinterpret_cast<Bf16*>(next), next += padded_dim / 2 * kKeyColumns;
    most = next, next += num_queries;
    weight_sums = next;
  }

  const Bf16* block(int position) const {
    return task.cache.data + std::ptrdiff_t{task.block_lines[position / task.cache.block_size]} * kLineNumbers;
  }

  void begin() {
    constexpr float kLog2E = 1.44269504F;
    const int head_dim = task.cache.head_dim;
    for (int query = 0; query < num_queries; ++query) {
      const float* q = task.q + query / task.num_heads * task.q_stride + query % task.num_heads * head_dim;
      for (int i = 0; i < head_dim; i += kLanes)
        store_bf16(queries + query * padded_dim + i, load<Floats>(q + i) * (task.scale * kLog2E));
      for (int i = 0; i < padded_dim; i += kLanes) store(sums + query * padded_dim + i, Floats{});
      most[query] = -__builtin_inff();
      weight_sums[query] = 0.0F;
    }
  }

  // Keys of 16 positions from `first` on as a panel, and the elements from one pair of it to the next.
  const Bf16* keys(int first, int end, std::ptrdiff_t& stride) {
    const int block_size = task.cache.block_size;
    if (block_size % kKeyColumns == 0) {
      stride = kPair * block_size;
      return block(first) + kPair * (first % block_size);
    }
    stride = kPair * kKeyColumns;
    for (int column = 0; column < kKeyColumns; ++column) {
      const int position = first + column < end ? first + column : end - 1;  // beyond the end: anything, it is hidden
      const Bf16* from = block(position) + kPair * (position % block_size);
      for (int pair = 0; pair < task.cache.head_dim / kPair; ++pair)
        std::memcpy(gathered + pair * stride + kPair * column, from + pair * kPair * block_size, kPair * sizeof(Bf16));
    }
    return gathered;
  }

  // Scores of some queries with P panels of keys.
  template <int P>
  struct ScoreRows {
    Attention& attention;
    const Bf16* const* panels;
    std::ptrdiff_t stride;
    int column;
    const Bf16* const* next;  // panels of the next tile, or null

    template <int R>
    TREADLE_INLINE_MEMBER void run(int first) const {
      Floats products[R][P * kKeyVectors];
      if (P == kTilePanels && next != nullptr) {
        // Blocks lie anywhere, so the processor does not see what is read next. A line of keys or values for each pair
        // and panel is half of what the next tile needs; lines come in twos.
        const auto fetch = [&](std::ptrdiff_t pair) __attribute__((always_inline)) {
          const std::ptrdiff_t values = attention.task.cache.value_offset + (pair - 1) * kLineNumbers;
          const std::ptrdiff_t line = pair % 2 == 0 ? pair * stride : values;
#pragma GCC unroll 4
          for (int panel = 0; panel < P; ++panel) fetch_line(next[panel] + line);
        };
        multiply<R>(first, products, fetch);
      } else {
        multiply<R>(first, products, NoFetch{});
      }
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < P * kKeyVectors; ++v)
          store(attention.scores + (first + r) * kContextTile + column + v * kLanes, products[r][v]);
    }

    template <int R, typename Fetch>
    TREADLE_INLINE_MEMBER void multiply(int first, Floats (&products)[R][P * kKeyVectors], const Fetch& fetch) const {
      const std::ptrdiff_t padded_dim = attention.padded_dim;
      multiply_panels(attention.queries + first * padded_dim, padded_dim, Bf16Panels<kKeyVectors>{panels, stride},
                      attention.task.cache.head_dim / kPair, products, fetch);
    }
  };

  // The panels of a whole tile together share the loads of the queries; elsewhere, panel by panel.
  void score(int tile, int end) {
    const bool in_place = task.cache.block_size % kKeyColumns == 0;
    const Bf16* panels[kTilePanels];
    std::ptrdiff_t stride = 0;
    if (kScoreRows > 1 && in_place && tile + kContextTile <= end) {
      for (int panel = 0; panel < kTilePanels; ++panel) panels[panel] = keys(tile + panel * kKeyColumns, end, stride);
      const Bf16* next[kTilePanels];
      const bool fetches = num_queries <= kScoreRows && tile + kContextTile < end;
      for (int panel = 0; fetches && panel < kTilePanels; ++panel) {
        const int first = tile + kContextTile + panel * kKeyColumns;
        next[panel] = keys(first < end ? first : end - 1, end, stride);
      }
      for_row_groups<kScoreRows>(ScoreRows<kTilePanels>{*this, panels, stride, 0, fetches ? next : nullptr}, num_queries);
      return;
    }
    for (int column = 0; column < kContextTile && tile + column < end; column += kKeyColumns) {
      panels[0] = keys(tile + column, end, stride);
      for_row_groups<kMaxRows>(ScoreRows<1>{*this, panels, stride, column, nullptr}, num_queries);
    }
  }

  // Scores become weights, relative to the largest score so far; what was summed before is brought to the same scale.
  void weigh(int query, int tile) {
    const int position = task.first_position + query / task.num_heads;
    const int behind = position + task.window;
    const int end = !task.sees_behind ? position + 1 : behind < task.end_position ? behind : task.end_position;
    const int num_visible = end - tile;  // of the tile's positions: these, without the first few
    const int num_passed = position + 1 - task.window - tile;
    Bf16* row = weights + query * kContextTile;
    Floats tile_scores[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) tile_scores[v] = load<Floats>(scores + query * kContextTile + v * kLanes);
    if (num_visible < kContextTile || num_passed > 0) {
      if (num_visible <= 0 || num_passed >= kContextTile) {  // the row sees nothing of this tile
        for (int v = 0; v < kTileVectors; ++v) store_bf16(row + v * kLanes, Floats{});
        return;
      }
      const Floats hidden = broadcast(-__builtin_inff());
      for (int v = 0; v < kTileVectors; ++v) {
        const Ints lane = lane_numbers() + v * kLanes;
        tile_scores[v] = (lane < num_visible) & (lane >= num_passed) ? tile_scores[v] : hidden;
      }
    }
    Floats top = tile_scores[0];
    for (int v = 1; v < kTileVectors; ++v) top = larger(tile_scores[v], top);
    const float before = most[query], here = largest(top), now = here > before ? here : before;
    Floats sum{};
    for (int v = 0; v < kTileVectors; ++v) {
      const Floats weight = power_of_two(tile_scores[v] - now);
      store_bf16(row + v * kLanes, weight);
      sum += weight;
    }
    if (now != before) {
      const float shrink = power_of_two(broadcast(before - now))[0];
      weight_sums[query] *= shrink;
      float* summed = sums + query * padded_dim;
      for (int i = 0; i < padded_dim; i += kLanes) store(summed + i, load<Floats>(summed + i) * shrink);
      most[query] = now;
    }
    weight_sums[query] += total(sum);
  }

  // Adds the values of pairs of positions, weighted.
  struct ValueRows {
    Attention& attention;
    int num_pairs, column;

    template <int R>
    TREADLE_INLINE_MEMBER void run(int first) const {
      float* to = attention.sums + first * attention.padded_dim + column;
      const Bf16* weights = attention.weights + first * kContextTile;
      Floats sums[R][kValueVectors];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kValueVectors; ++v) sums[r][v] = load<Floats>(to + r * attention.padded_dim + v * kLanes);
      for (int pair = 0; pair < num_pairs; ++pair) {
        Bits value[kValueVectors];
        load_pairs(attention.values[kPair * pair] + column, attention.values[kPair * pair + 1] + column, value);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Bits weight = Bits{} + load<std::uint32_t>(weights + r * kContextTile + kPair * pair);
#pragma GCC unroll 8
          for (int v = 0; v < kValueVectors; ++v) sums[r][v] = add_pair(sums[r][v], weight, value[v]);
        }
      }
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kValueVectors; ++v) store(to + r * attention.padded_dim + v * kLanes, sums[r][v]);
    }
  };

  void add_values(int tile, int end) {
    const int head_dim = task.cache.head_dim, block_size = task.cache.block_size;
    const int num_positions = end - tile < kContextTile ? end - tile : kContextTile;
    const int num_pairs = (num_positions + 1) / kPair;
    for (int t = 0; t < num_positions;) {
      const int slot = (tile + t) % block_size;
      const Bf16* value = block(tile + t) + task.cache.value_offset + slot * head_dim;
      const int block_end = t + block_size - slot < num_positions ? t + block_size - slot : num_positions;
      for (; t < block_end; ++t, value += head_dim) values[t] = value;
    }
    if (num_positions % kPair != 0) values[num_positions] = values[num_positions - 1];  // anything, it weighs nothing
    for (int column = 0; column < padded_dim; column += kValueVectors * kLanes)
      for_row_groups<kMaxRows>(ValueRows{*this, num_pairs, column}, num_queries);
  }

  void finish() const {
    const int head_dim = task.cache.head_dim;
    for (int query = 0; query < num_queries; ++query) {
      const float* from = sums + query * padded_dim;
      const float inverse = 1.0F / weight_sums[query];
      const std::ptrdiff_t at = query / task.num_heads * task.out_stride + query % task.num_heads * head_dim;
      const RowOut out{task.out.wide == nullptr ? nullptr : task.out.wide + at,
                       task.out.narrow == nullptr ? nullptr : task.out.narrow + at};
      int i = 0;
      for (; i + kLanes <= head_dim; i += kLanes) put(out, i, load<Floats>(from + i) * inverse);
      for (; i < head_dim; ++i) put(out, i, from[i] * inverse);
    }
  }
};

static void attention(const AttentionTask& task) {
  Attention state(task);
  state.begin();
  const int end = task.end_position;
  const int begin = task.first_position + 1 > task.window ? task.first_position + 1 - task.window : 0;
  for (int tile = begin / kContextTile * kContextTile; tile < end; tile += kContextTile) {
    state.score(tile, end);
    for (int query = 0; query < state.num_queries; ++query) state.weigh(query, tile);
    state.add_values(tile, end);
  }
  state.finish();
}

}  // namespace treadle::TREADLE_LEVEL
