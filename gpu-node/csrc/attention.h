// The KV cache and the operators that write and read it.
#pragma once

#include <vector>

#include "buffer.h"
#include "row_operators.h"

namespace treadle {

// A layer is [blocks][kv_heads][keys of the block, then values]: what attention reads for a head lies together, and a
// block is one piece to copy.
class Cache {
 public:
  explicit Cache(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  Bf16* block(int layer, int index) const { return layers_[layer].as<Bf16>() + index * block_stride(); }
  std::ptrdiff_t value_offset() const { return std::ptrdiff_t{shape_.head_dim} * shape_.block_size; }
  std::ptrdiff_t head_stride() const { return 2 * value_offset(); }
  std::ptrdiff_t block_stride() const { return head_stride() * shape_.num_kv_heads; }

 private:
  CacheShape shape_;
  std::vector<Memory> layers_;
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

// Keys and values into their slots. With angles, queries and keys are turned first: the three operators as one.
class WriteKv final : public RowOperator {
 public:
  struct Turn {
    Columns q;
    const float* angles = nullptr;  // null: k is turned already
  };

  WriteKv(const Kernels& kernels, const Cache& cache, int layer, Columns k, Columns v, Turn turn)
      : RowOperator(k.rows), kernels_(kernels), cache_(cache), layer_(layer), k_(k), v_(v), turn_(turn) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  const Cache& cache_;
  int layer_;
  Columns k_, v_;
  Turn turn_;
};

class Attention final : public Operator {
 public:
  static constexpr int kNoWindow = 1 << 30;

  Attention(const Kernels& kernels, const Cache& cache, int layer, int window, Share share, Columns q, Columns out);

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;

 private:
  int num_groups(const Step& step) const;  // of its share
  const RowGroup& group(int number, const Step& step) const;

  const Kernels& kernels_;
  const Cache& cache_;
  int layer_, window_, num_shared_;
  Share share_;
  Columns q_, out_;
};

class CopyBlocks final : public Operator {
 public:
  explicit CopyBlocks(const Cache& cache) : cache_(cache) {}

  int num_tasks(const Step& step) const override;
  void run(int layer, const Step& step, Scratch& scratch) const override;

 private:
  const Cache& cache_;
};

}  // namespace treadle
