// Causal attention over paged keys and values, with a running softmax (FlashAttention, 2022) over tiles of the context.
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
constexpr int kFewQueries = TREADLE_DOT ? 6 : 1;  // whose products with all panels of a tile fit into the registers
constexpr int kLineNumbers = kLineBytes / sizeof(Bf16);
constexpr int kMaxFetchNumbers = 64 * kLineNumbers;
constexpr int kValueVectors = TREADLE_DOT ? 4 : 2;
constexpr int kValueRows = TREADLE_DOT ? 5 : 4;

// One task's running state, laid out in its scratch.
struct Attention {
  const AttentionTask& task;
  int num_queries, padded_dim;
  Bf16* queries;    // [queries][padded_dim]
  float* scores;    // [queries][kContextTile]
  float* sums;      // [queries][padded_dim]: values weighted so far
  float* most;      // [queries]: largest score so far
  float* weights;   // [queries]: sum of weights so far
  Bf16* gathered;   // [padded_dim / 2][kKeyColumns][2]: keys that do not lie together in the cache
  const Bf16* values[kContextTile];  // row of each position of the tile

  explicit Attention(const AttentionTask& of)
      : task(of), num_queries(of.num_rows * of.num_heads), padded_dim((of.cache.head_dim + 15) / 16 * 16) {
    float* next = task.scratch;
    sums = next, next += num_queries * padded_dim;
    scores = next, next += num_queries * kContextTile;
    queries = reinterpret_cast<Bf16*>(next), next += num_queries * padded_dim / 2;
    gathered = reinterpret_cast<Bf16*>(next), next += padded_dim / 2 * kKeyColumns;
    most = next, next += num_queries;
    weights = next;
  }

  const Bf16* block(int position) const {
    return task.cache.data + std::ptrdiff_t{task.block_lines[position / task.cache.block_size]} * kLineNumbers;
  }

  void begin() {
    const int head_dim = task.cache.head_dim;
    for (int query = 0; query < num_queries; ++query) {
      const float* q = task.q + query / task.num_heads * task.q_stride + query % task.num_heads * head_dim;
      for (int i = 0; i < head_dim; ++i) queries[query * padded_dim + i] = to_bf16(q[i] * task.scale);
      for (int i = 0; i < padded_dim; ++i) sums[query * padded_dim + i] = 0.0F;
      most[query] = -__builtin_inff();
      weights[query] = 0.0F;
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

  // Scores of some queries with P panels of keys. For few queries the panels of a whole tile are taken together: sums
  // of one panel alone would wait for each other.
  template <int P>
  struct ScoreRows {
    Attention& attention;
    const Bf16* const* panels;
    std::ptrdiff_t stride;
    int column;

    template <int R>
    TREADLE_INLINE_MEMBER void run(int first) const {
      const std::ptrdiff_t padded_dim = attention.padded_dim;
      Floats products[R][P * kKeyVectors];
      multiply_panels<R, P, kKeyVectors>(attention.queries + first * padded_dim, padded_dim, panels, stride,
                                         attention.task.cache.head_dim / kPair, products);
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < P * kKeyVectors; ++v)
          store(attention.scores + (first + r) * kContextTile + column + v * kLanes, products[r][v]);
    }
  };

  void score(int tile, int end) {
    const bool in_place = task.cache.block_size % kKeyColumns == 0;
    const Bf16* panels[kTilePanels];
    std::ptrdiff_t stride = 0;
    if (in_place && num_queries <= kFewQueries && tile + kContextTile <= end) {
      for (int panel = 0; panel < kTilePanels; ++panel) panels[panel] = keys(tile + panel * kKeyColumns, end, stride);
      for_row_groups<kFewQueries>(ScoreRows<kTilePanels>{*this, panels, stride, 0}, num_queries);
      return;
    }
    for (int column = 0; column < kContextTile && tile + column < end; column += kKeyColumns) {
      panels[0] = keys(tile + column, end, stride);
      for_row_groups<kMaxRows>(ScoreRows<1>{*this, panels, stride, column}, num_queries);
    }
  }

  // Scores become weights, relative to the largest score so far; what was summed before is brought to the same scale.
  void weigh(int query, int tile) {
    const int position = task.first_position + query / task.num_heads;
    const int num_visible = position + 1 - tile;  // of the tile's positions: these, without the first few
    const int num_passed = num_visible - task.window;
    float* row = scores + query * kContextTile;
    Floats top = broadcast(most[query]);
    const Floats hidden = broadcast(-__builtin_inff());
    for (int column = 0; column < kContextTile; column += kLanes) {
      const Ints lane = lane_numbers() + column;
      const Floats score = (lane < num_visible) & (lane >= num_passed) ? load<Floats>(row + column) : hidden;
      store(row + column, score);
      top = larger(score, top);
    }
    const float now = largest(top);
    if (num_visible <= 0 || num_passed >= kContextTile) {  // the row sees nothing of this tile
      for (int column = 0; column < kContextTile; column += kLanes) store(row + column, Floats{});
      return;
    }
    Floats sum{};
    for (int column = 0; column < kContextTile; column += kLanes) {
      const Floats weight = exponential(load<Floats>(row + column) - now);
      store(row + column, weight);
      sum += weight;
    }
    if (now != most[query]) {
      const float shrink = exponential(broadcast(most[query] - now))[0];
      weights[query] *= shrink;
      float* summed = sums + query * padded_dim;
      for (int i = 0; i < padded_dim; i += kLanes) store(summed + i, load<Floats>(summed + i) * shrink);
      most[query] = now;
    }
    weights[query] += total(sum);
  }

  template <int V>
  struct ValueRows {
    Attention& attention;
    int num_positions, column;

    template <int R>
    TREADLE_INLINE_MEMBER void run(int first) const {
      float* to = attention.sums + first * attention.padded_dim + column;
      const float* weights = attention.scores + first * kContextTile;
      Floats sums[R][V];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sums[r][v] = load<Floats>(to + r * attention.padded_dim + v * kLanes);
      for (int t = 0; t < num_positions; ++t) {
        Floats value[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) value[v] = load_bf16(attention.values[t] + column + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) sums[r][v] += weights[r * kContextTile + t] * value[v];
      }
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store(to + r * attention.padded_dim + v * kLanes, sums[r][v]);
    }
  };

  // Asks for the keys and values that the next tile needs: blocks lie anywhere, no prefetcher guesses the next one.
  void fetch(int tile, int end) const {
    const std::ptrdiff_t head_numbers = 2 * task.cache.value_offset;
    if (num_queries > kFewQueries || head_numbers > kMaxFetchNumbers) return;
    for (int first = tile; first < end && first < tile + kContextTile; first += task.cache.block_size)
      for (std::ptrdiff_t i = 0; i < head_numbers; i += kLineNumbers) __builtin_prefetch(block(first) + i);
  }

  void add_values(int tile, int end) {
    const int head_dim = task.cache.head_dim, block_size = task.cache.block_size;
    const int num_positions = end - tile < kContextTile ? end - tile : kContextTile;
    for (int t = 0; t < num_positions;) {
      const int slot = (tile + t) % block_size;
      const Bf16* value = block(tile + t) + task.cache.value_offset + slot * head_dim;
      const int block_end = t + block_size - slot < num_positions ? t + block_size - slot : num_positions;
      for (; t < block_end; ++t, value += head_dim) values[t] = value;
    }
    int column = 0;
    for (; column + kValueVectors * kLanes <= padded_dim; column += kValueVectors * kLanes)
      for_row_groups<kValueRows>(ValueRows<kValueVectors>{*this, num_positions, column}, num_queries);
    for (; column < padded_dim; column += kLanes)
      for_row_groups<kValueRows>(ValueRows<1>{*this, num_positions, column}, num_queries);
  }

  void finish() const {
    const int head_dim = task.cache.head_dim;
    for (int query = 0; query < num_queries; ++query) {
      const float* from = sums + query * padded_dim;
      const float inverse = 1.0F / weights[query];
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
  const int end = task.first_position + task.num_rows;  // positions that the last row sees
  const int begin = task.first_position + 1 > task.window ? task.first_position + 1 - task.window : 0;
  for (int tile = begin / kContextTile * kContextTile; tile < end; tile += kContextTile) {
    state.fetch(tile + kContextTile, end);
    state.score(tile, end);
    for (int query = 0; query < state.num_queries; ++query) state.weigh(query, tile);
    state.add_values(tile, end);
  }
  state.finish();
}

}  // namespace treadle::TREADLE_LEVEL
