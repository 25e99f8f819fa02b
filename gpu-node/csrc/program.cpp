#include "program.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "link_sender.h"
#include "offload.h"

namespace treadle {

Program::Program(const Kernels& kernels, const Limits& limits, const CacheShape& cache, const Arena& arena,
                 const Arena& host, int rows_together)
    : kernels_(kernels),
      limits_(limits),
      rows_together_(rows_together),
      cache_(cache, arena, host),
      cells_(kNumCells * sizeof(std::int32_t)),
      touched_(cache.num_layers) {
  add_operator<MoveBlocks>(cache_);
  add_operator<MoveRemoteBlocks>(cache_.arena());
  num_movers_ = operators_.size();
}

void Program::work_on(const Share& share) {
  for (const PartRange& range : share) {
    const int part = static_cast<int>(range.part);
    if (part < 0 || part >= kNumParts || range.start < 0 || range.start >= range.end || range.end > range.count)
      throw std::invalid_argument("a share is from one fraction of a part of the batch to a later one");
  }
  const auto known = std::find(shares_.begin(), shares_.end(), share);
  share_ = static_cast<int>(known - shares_.begin());
  if (known == shares_.end()) shares_.push_back(share);
}

void Program::queue_in(int lane, float device_part) {
  if (lane < 0 || lane >= kNumLanes) throw std::invalid_argument("there are four lanes");
  if (!(device_part > 0 && device_part <= 1)) throw std::invalid_argument("a part of a device is above 0, at most 1");
  lane_ = lane;
  device_part_ = device_part;
}

void Program::wait_for(int lane, int num_ended) {
  if (lane_ == kNoLane || num_ended < 1 || num_ended > lane_size(lane))
    throw std::invalid_argument("an operator in a lane waits for some that are in another");
  waits_[lane_].push_back({lane, num_ended});
}

void Program::add(std::unique_ptr<Operator> one) {
  if (lane_ == kNoLane) note_layer(one->cache_layer());
  last_ = one.get();
  last_->work_on(share_);
  if (lane_ == kNoLane) {
    operators_.push_back(std::move(one));
  } else {
    lanes_[lane_].push_back({std::move(one), device_part_, std::exchange(waits_[lane_], {})});
  }
}

void Program::note_layer(int layer) {
  if (layer == kNoLayer) return;
  if (layer < 0 || layer >= cache_.shape().num_layers) throw std::invalid_argument("the cache has no such layer");
  if (touched_[layer]) return;
  touched_[layer] = true;
  const std::size_t before = operators_.size() - 1;
  if (before < num_movers_ || layer_beside(before) != kNoLayer) return;  // then all blocks move first
  layers_beside_.resize(operators_.size(), kNoLayer);
  layers_beside_[before] = layer;
  ++num_beside_;
}

int Program::add_buffer(RowKind rows, Type type, int num_columns) {
  const std::ptrdiff_t stride = (num_columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  const std::ptrdiff_t num_rows = rows == RowKind::tokens ? limits_.max_rows : limits_.max_draws;
  const std::size_t number_bytes = type == Type::float32 ? sizeof(float) : sizeof(Bf16);
  Memory memory(static_cast<std::size_t>(num_rows * stride) * number_bytes);
  std::byte* data = memory.as<std::byte>();
  buffers_.push_back({std::move(memory), Columns{data, stride, num_columns, type, rows}});
  return static_cast<int>(buffers_.size()) - 1;
}

int Program::add_weight(const float* weight, int num_outputs, int num_inputs, bool halves) {
  weights_.push_back(pack_weight(weight, num_outputs, num_inputs, halves, kernels_, pool_));
  return static_cast<int>(weights_.size()) - 1;
}

int Program::add_weight(const std::int8_t* weight, const float* scales, int num_outputs, int num_inputs, bool halves) {
  weights_.push_back(pack_weight(weight, scales, num_outputs, num_inputs, halves, pool_));
  return static_cast<int>(weights_.size()) - 1;
}

int Program::add_constant(const float* values, std::int64_t num_values) {
  Memory memory(static_cast<std::size_t>(num_values) * sizeof(float));
  std::memcpy(memory.as<float>(), values, static_cast<std::size_t>(num_values) * sizeof(float));
  constants_.push_back(std::move(memory));
  return static_cast<int>(constants_.size()) - 1;
}

Columns Program::columns(int buffer, int first, int num_columns) const {
  Columns columns = buffers_.at(buffer).all;
  if (first < 0 || num_columns < 1 || first + num_columns > columns.num_columns)
    throw std::out_of_range("columns outside of their buffer");
  const std::size_t number_bytes = columns.type == Type::float32 ? sizeof(float) : sizeof(Bf16);
  columns.data += first * number_bytes;
  columns.num_columns = num_columns;
  return columns;
}

void Program::count_send() {
  note_link();
  most_under_way_ = std::max(most_under_way_, ++num_under_way_);
}

void Program::note_link() {
  if (lane_ == kNoLane) return;
  if (link_lane_ != kNoLane && link_lane_ != lane_)
    throw std::invalid_argument("what is sent to other devices, or comes from there, is in one lane");
  link_lane_ = lane_;
}

void Program::count_gather() {
  note_link();
  if (num_under_way_ == 0) throw std::invalid_argument("a gather of what was not sent");
  --num_under_way_;
}

void Program::count_copy_out() {
  if (lane_ == kNoLane) throw std::invalid_argument("blocks are copied out by operators of lanes, or before all others");
  copies_out_in_lanes_ = true;
}

Step Program::make_step(const StepInput& input) const {
  Step step(input, limits_, cache_.shape(), cache_.places(), cache_.host_places(), rows_together_,
            cells_.as<std::int32_t>(), shares_);
  if (step.in_lanes && std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane.empty(); }))
    throw std::invalid_argument("a step in lanes, and a program without");
  if (std::any_of(step.adapters.begin(), step.adapters.end(), [&](int adapter) { return adapter >= num_adapters_; }))
    throw std::invalid_argument("a sequence has an adapter that the program has not");
  if (!step.in_lanes || !copies_out_in_lanes_) {
    step.swaps_out.insert(step.swaps_out.end(), step.copies_out.begin(), step.copies_out.end());
    step.copies_out.clear();
  }
  step.moves_beside = step.moves_beside && !step.in_lanes && step.remotes.empty() && has_all_beside() &&
                      operators_.front()->num_tasks(step) > 0;
  for (const RemoteRange& range : step.remotes) {
    if (range.starts.empty()) continue;
    if (most_under_way_ == 0 || (step.in_lanes && link_lane_ == kNoLane))
      throw std::invalid_argument("sequences on other devices, and a program that sends nothing");
    if (range.link->shape().num_slots < most_under_way_)
      throw std::invalid_argument("a link has fewer slots than the program has tasks under way");
  }
  return step;
}

}  // namespace treadle
