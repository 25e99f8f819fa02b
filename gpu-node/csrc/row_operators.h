// Operators that treat each row by itself.
#pragma once

#include "buffer.h"
#include "operator.h"

namespace treadle {

class RowOperator : public Operator {
 public:
  explicit RowOperator(RowKind rows) : rows_(rows) {}
  int num_tasks(const Step& step) const final;
  void run(int task, const Step& step, Scratch& scratch) const final;

 protected:
  virtual void run_row(int row, const Step& step) const = 0;

 private:
  static constexpr int kRowsTogether = 4;

  RowKind rows_;
};

class Embedding final : public RowOperator {
 public:
  enum class Index : std::int32_t { token_ids, positions };

  Embedding(const PackedWeight& table, Index index, Columns out)
      : RowOperator(out.rows), table_(table), index_(index), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const PackedWeight& table_;
  Index index_;
  Columns out_;
};

// Which text of a pair each row is of: the one up to its sequence's first separator, or the one behind that.
class SegmentEmbedding final : public RowOperator {
 public:
  SegmentEmbedding(const PackedWeight& table, std::int32_t separator, Columns out)
      : RowOperator(out.rows), table_(table), separator_(separator), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const PackedWeight& table_;
  std::int32_t separator_;
  Columns out_;
};

class RmsNorm final : public RowOperator {
 public:
  RmsNorm(const Kernels& kernels, Columns x, const float* weight, float epsilon, Columns out)
      : RowOperator(out.rows), kernels_(kernels), x_(x), weight_(weight), epsilon_(epsilon), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_;
  const float* weight_;
  float epsilon_;
  Columns out_;
};

class LayerNorm final : public RowOperator {
 public:
  LayerNorm(const Kernels& kernels, Columns x, const float* weight, const float* bias, float epsilon, Columns out)
      : RowOperator(out.rows), kernels_(kernels), x_(x), weight_(weight), bias_(bias), epsilon_(epsilon), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_;
  const float *weight_, *bias_;
  float epsilon_;
  Columns out_;
};

// The norm of each head by itself, in place.
class HeadNorm final : public RowOperator {
 public:
  HeadNorm(const Kernels& kernels, Columns x, const float* weight, float epsilon, int head_dim)
      : RowOperator(x.rows), kernels_(kernels), x_(x), weight_(weight), epsilon_(epsilon), head_dim_(head_dim) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_;
  const float* weight_;
  float epsilon_;
  int head_dim_;
};

// Adds the same numbers to each row, in place.
class AddBias final : public RowOperator {
 public:
  AddBias(const Kernels& kernels, Columns x, const float* bias)
      : RowOperator(x.rows), kernels_(kernels), x_(x), bias_(bias) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_;
  const float* bias_;
};

// ReLU, either GELU, or the hyperbolic tangent.
class Activation final : public RowOperator {
 public:
  using Kernel = void (*)(const float* x, int num_columns, RowOut out);

  Activation(Kernel kernel, Columns x, Columns out) : RowOperator(out.rows), kernel_(kernel), x_(x), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  Kernel kernel_;
  Columns x_, out_;
};

// SiLU or GELU of one buffer, times another.
class GatedActivation final : public RowOperator {
 public:
  using Kernel = void (*)(const float* gate, const float* up, int num_columns, RowOut out);

  GatedActivation(Kernel kernel, Columns gate, Columns up, Columns out)
      : RowOperator(out.rows), kernel_(kernel), gate_(gate), up_(up), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  Kernel kernel_;
  Columns gate_, up_, out_;
};

class Add final : public RowOperator {
 public:
  Add(const Kernels& kernels, Columns a, Columns b, Columns out)
      : RowOperator(out.rows), kernels_(kernels), a_(a), b_(b), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns a_, b_, out_;
};

class Round final : public RowOperator {
 public:
  Round(const Kernels& kernels, Columns x, Columns out)
      : RowOperator(out.rows), kernels_(kernels), x_(x), out_(out) {}

 private:
  void run_row(int row, const Step& step) const override;

  const Kernels& kernels_;
  Columns x_, out_;
};

// Copies the rows that draw, as numbers of whichever type they are.
class SelectDraws final : public RowOperator {
 public:
  SelectDraws(Columns x, Columns out);

 private:
  void run_row(int row, const Step& step) const override;

  Columns x_, out_;
};

// Of each sequence that draws, the first row that the step has of it.
class SelectFirst final : public RowOperator {
 public:
  SelectFirst(Columns x, Columns out);

 private:
  void run_row(int row, const Step& step) const override;

  Columns x_, out_;
};

// The mean of a sequence's rows up to the one that draws, added one after another.
class MeanPool final : public RowOperator {
 public:
  MeanPool(Columns x, Columns out);

 private:
  void run_row(int row, const Step& step) const override;

  Columns x_, out_;
};

}  // namespace treadle
