// The KV cache and the operators that write and read it.
#pragma once

#include <algorithm>

#include "arena.h"
#include "buffer.h"
#include "row_operators.h"

namespace treadle {

// A model's part of an arena, and of the host's for what is swapped out. A block is [layers][kv_heads][keys, then
// values]: what attention reads for a head lies together, and a block is one piece to move and to give to another model.
class Cache {
 public:
  // The arenas outlive the cache. The blocks of the shape must fit into `arena`.
  Cache(const CacheShape& shape, const Arena& arena, const Arena& host);

  const CacheShape& shape() const { return shape_; }
  const Arena& arena() const { return arena_; }
  const Arena& host() const { return host_; }
  const BlockPlaces& places() const { return places_; }
  const BlockPlaces& host_places() const { return host_places_; }
  // A layer of the block that begins at `line`.
  Bf16* layer(int index, std::int32_t line) const {
    return reinterpret_cast<Bf16*>(arena_.line(line)) + index * layer_stride();
  }
  // Key and value of a head, [head_dim] each, into place `offset` of the block that begins at `line`.
  void put(int index, std::int32_t line, int head, int offset, const Bf16* key, const Bf16* value) const;
  std::ptrdiff_t value_offset() const { return std::ptrdiff_t{shape_.head_dim} * shape_.block_size; }
  std::ptrdiff_t head_stride() const { return 2 * value_offset(); }
  std::ptrdiff_t layer_stride() const { return head_stride() * shape_.num_kv_heads; }

 private:
  std::int64_t block_bytes() const { return layer_stride() * shape_.num_layers * std::int64_t{sizeof(Bf16)}; }

  CacheShape shape_;
  const Arena& arena_;
  const Arena& host_;
  BlockPlaces places_, host_places_;
};

class Rope final : public RowOperator {
 public:
  Rope(const Kernels& kernels, Columns x, const float* angles, int head_dim)
      : RowOperator(x.rows), kernels_(kernels), x_(x), angles_(angles), head_dim_(head_dim) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_;
  const float* angles_;  // [positions][head_dim]
  int head_dim_;
};

// Keys and values into their slots, of rows that have one. With angles, queries and keys are turned first: the three operators as one.
class WriteKv final : public RowOperator {
 public:
  struct Turn {
    Columns q;
    const float* angles = nullptr;  // null: k is turned already
  };

  WriteKv(const Kernels& kernels, const Cache& cache, int layer, Columns k, Columns v, Turn turn)
      : RowOperator(k.rows), kernels_(kernels), cache_(cache), layer_(layer), k_(k), v_(v), turn_(turn) {}

  int cache_layer() const override { return layer_; }

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  const Cache& cache_;
  int layer_;
  Columns k_, v_;
  Turn turn_;
};

// What of its sequence a row sees: at most so many positions, the last its own; and to both sides, as many behind that.
struct Sight {
  static constexpr int kNoWindow = 1 << 30;

  int window = kNoWindow;
  bool both_sides = false;

  // Behind what the last row of a group sees.
  int end_of(const RowGroup& group) const {
    const int end = group.first_position + group.num_rows;
    return both_sides ? std::min(group.end_of_sequence, end - 1 + window) : end;
  }
};

// A group's rows, the heads that share KV head `kv_head`, over the blocks of their sequence. `q` and `out` are the first
// row of the group.
void attend(const Kernels& kernels, const Cache& cache, int layer, Sight sight, int num_shared, const RowGroup& group,
            int kv_head, const float* q, std::ptrdiff_t q_stride, const std::int32_t* block_lines, RowOut out,
            std::ptrdiff_t out_stride, Scratch& scratch);

class Attention final : public Operator {
 public:
  Attention(const Kernels& kernels, const Cache& cache, int layer, Sight sight, Columns q, Columns out);

  int num_tasks(const Step& step) const override;
  bool is_splittable() const override { return true; }
  void run(int task, const Step& step, Scratch& scratch) const override;
  int cache_layer() const override { return layer_; }

 private:
  const Kernels& kernels_;
  const Cache& cache_;
  int layer_;
  Sight sight_;
  int num_shared_;
  Columns q_, out_;
};

// Swaps out, then copies as if at the same time, then swaps in. A task does one layer of all of them: tasks share no
// byte, so their order needs no meeting of threads. Nor is one needed before anything touches that layer.
class MoveBlocks final : public Operator {
 public:
  explicit MoveBlocks(const Cache& cache) : cache_(cache) {}

  int num_tasks(const Step& step) const override;
  void run(int layer, const Step& step, Scratch& scratch) const override;

 private:
  const Cache& cache_;
};

// One layer of a step's copies of full blocks to the host: of these, from `first` / `count` to `end` / `count`.
class CopyOut final : public Operator {
 public:
  CopyOut(const Cache& cache, int layer, int first, int end, int count);

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  std::int64_t place(int part, const Step& step) const;

  const Cache& cache_;
  int layer_, first_, end_, count_;
};

}  // namespace treadle
