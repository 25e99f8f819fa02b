// A model for one device: its memory, planned once for the largest step, and its operators in their order.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "lanes.h"
#include "linear.h"
#include "operator.h"

namespace treadle {

class Program {
 public:
  // The arenas outlive the program.
  Program(const Kernels& kernels, const Limits& limits, const CacheShape& cache, const Arena& arena, const Arena& host,
          int rows_together);

  int add_buffer(RowKind rows, Type type, int num_columns);
  int add_weight(const float* weight, int num_outputs, int num_inputs, bool halves);
  int add_weight(const std::int8_t* weight, const float* scales, int num_outputs, int num_inputs, bool halves);
  int add_constant(const float* values, std::int64_t num_values);

  Columns columns(int buffer, int first, int num_columns) const;
  const PackedWeight& weight(int index) const { return weights_.at(index); }
  const float* constant(int index) const { return constants_.at(index).as<float>(); }
  const Kernels& kernels() const { return kernels_; }
  const Cache& cache() const { return cache_; }
  const Limits& limits() const { return limits_; }

  // Of a step, what all operators work on that are added from now on.
  void work_on(const Share& share);

  // Where all operators go that are added from now on: to the end of a lane; or, as at first, of the list, which a step
  // runs that is in no lanes. Of the list, the first move blocks and the last draws: steps in lanes have them too.
  void queue_in(int lane, float device_part);
  void list() { lane_ = kNoLane; }
  // Before the next operator of the lane begins, `num_ended` of another one have ended.
  void wait_for(int lane, int num_ended);
  int lane_size(int lane) const { return static_cast<int>(lanes_.at(lane).size()); }

  template <typename T, typename... Arguments>
  void add_operator(Arguments&&... arguments) {
    add(std::make_unique<T>(std::forward<Arguments>(arguments)...));
  }

  // Operators are for so many adapters.
  void count_adapters(int number) { num_adapters_ = std::max(num_adapters_, number); }

  // How many tasks a step has under way at the same time decides how many slots a link needs.
  // What speaks with other devices is in one lane, if in any.
  void count_send();
  void count_gather();

  // Copies of full blocks to the host are made by operators of lanes, one a layer or more.
  void count_copy_out();

  void poll_behind_last() { last_->poll_behind(); }

  Step make_step(const StepInput& input) const;
  const std::vector<std::unique_ptr<Operator>>& operators() const { return operators_; }
  // The first of these, which move blocks.
  std::size_t num_movers() const { return num_movers_; }
  // Behind these: the layer whose blocks may move beside an operator, since it is the last before one that touches it.
  int layer_beside(std::size_t index) const { return index < layers_beside_.size() ? layers_beside_[index] : kNoLayer; }
  const LaneQueues& lanes() const { return lanes_; }

 private:
  struct Buffer {
    Memory memory;
    Columns all;
  };

  static constexpr int kNoLayer = Operator::kNoLayer;

  void add(std::unique_ptr<Operator> one);
  void note_layer(int layer);
  void note_link();
  bool has_all_beside() const { return num_beside_ == cache_.shape().num_layers; }

  const Kernels& kernels_;
  Limits limits_;
  int rows_together_;  // of one sequence, in an attention task
  Cache cache_;
  Memory cells_;  // of drawn tokens; first of all 0, as a cell is whose token could not be drawn
  std::vector<Buffer> buffers_;
  Pool pool_;
  std::deque<PackedWeight> weights_;  // operators keep references
  std::vector<Memory> constants_;
  std::vector<Share> shares_{{}};  // the first is the whole batch
  int share_ = 0;                  // of operators that are added
  std::vector<std::unique_ptr<Operator>> operators_;
  std::size_t num_movers_ = 0;
  std::vector<int> layers_beside_;  // by operator, as far as one has such a layer
  std::vector<bool> touched_;       // by layer
  int num_beside_ = 0;
  LaneQueues lanes_;
  static constexpr int kNoLane = -1;
  int lane_ = kNoLane;  // of operators that are added, with the next two
  float device_part_ = 0;
  std::array<std::vector<LaneWait>, kNumLanes> waits_;  // of the next operator of each lane
  Operator* last_ = nullptr;  // that was added
  int num_adapters_ = 0;
  int num_under_way_ = 0, most_under_way_ = 0;  // sends without their gathers, in the list and in lanes
  int link_lane_ = kNoLane;                     // where these are
  bool copies_out_in_lanes_ = false;
};

}  // namespace treadle
