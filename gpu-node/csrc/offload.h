// A step's rows that lie on another device: sent there behind the local ones, and gathered (Weaver, ATC'25, §3).
#pragma once

#include "buffer.h"
#include "operator.h"

namespace treadle {

// Queries, keys and values of the step's remote rows into their links' slots; then asks for the rows' attention.
class Send final : public Operator {
 public:
  Send(const Kernels& kernels, Columns q, Columns k, Columns v, int layer, int window, Type answer)
      : kernels_(kernels), q_(q), k_(k), v_(v), layer_(layer), window_(window), answer_(answer) {}

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;
  bool waits(const Step& step) const override { return !step.remotes.empty(); }
  bool is_ready(const Step& step) const override;
  void sleep(const Step& step, std::chrono::nanoseconds at_most) const override;
  void finish(const Step& step) const override;

 private:
  const Kernels& kernels_;
  Columns q_, k_, v_;
  int layer_, window_;
  Type answer_;
};

// The answers to what was sent last and not gathered yet, into the remote rows; zeros for those that are lost.
class Gather final : public Operator {
 public:
  explicit Gather(Columns out) : out_(out) {}

  int num_tasks(const Step& step) const override;
  void run(int task, const Step& step, Scratch& scratch) const override;
  bool waits(const Step& step) const override { return !step.remotes.empty(); }
  bool is_ready(const Step& step) const override;
  void sleep(const Step& step, std::chrono::nanoseconds at_most) const override;
  void finish(const Step& step) const override;

 private:
  Columns out_;
};

}  // namespace treadle
