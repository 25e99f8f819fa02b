#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace treadle {

namespace {

const CacheShape& checked(const CacheShape& shape) {
  if (shape.num_layers < 1 || shape.block_size < 1 || shape.num_kv_heads < 1)
    throw std::invalid_argument("a cache has layers, heads and blocks of at least one token");
  if (shape.head_dim < kPair || shape.head_dim % kPair != 0 || shape.head_dim > kMaxHeadDim)
    throw std::invalid_argument("a head has an even dimension of at most 512");
  return shape;
}

}  // namespace

Cache::Cache(const CacheShape& shape, const Arena& arena, const Arena& host)
    : shape_(checked(shape)),
      arena_(arena),
      host_(host),
      places_(arena, block_bytes()),
      host_places_(host, block_bytes()) {
  if (shape.num_blocks > 0 && !places_.has(shape.num_blocks - 1))
    throw std::invalid_argument("the blocks of the cache do not fit into its arena");
}

void Cache::put(int index, std::int32_t line, int head, int offset, const Bf16* key, const Bf16* value) const {
  Bf16* slot = layer(index, line) + head * head_stride();
  for (int i = 0; i < shape_.head_dim; i += kPair)
    std::memcpy(slot + i * shape_.block_size + kPair * offset, key + i, kPair * sizeof(Bf16));
  std::memcpy(slot + value_offset() + offset * shape_.head_dim, value, shape_.head_dim * sizeof(Bf16));
}

void Rope::run_row(int row, const Step& step) const {
  kernels_.rope(x_.wide(row), angles_ + std::ptrdiff_t{step.positions[row]} * head_dim_, x_.num_columns / head_dim_,
                head_dim_);
}

void WriteKv::run_row(int row, const Step& step) const {
  const CacheShape& shape = cache_.shape();
  float* k = k_.wide(row);
  if (turn_.angles != nullptr) {
    const float* angles = turn_.angles + std::ptrdiff_t{step.positions[row]} * shape.head_dim;
    kernels_.rope(turn_.q.wide(row), angles, turn_.q.num_columns / shape.head_dim, shape.head_dim);
    kernels_.rope(k, angles, shape.num_kv_heads, shape.head_dim);
  }
  if (step.row_lines[row] == kNowhere) return;
  // A vector may run over the end of a head shorter than itself, into a row that another thread writes just now: what it
  // reads there is rounded and thrown away. ThreadSanitizer reports it for tiny models, rightly and without harm.
  Bf16 key[kMaxHeadDim + kPanelColumns], value[kMaxHeadDim + kPanelColumns];
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    kernels_.round(k + head * shape.head_dim, shape.head_dim, key);
    kernels_.round(v_.wide(row) + head * shape.head_dim, shape.head_dim, value);
    cache_.put(layer_, step.row_lines[row], head, step.positions[row] % shape.block_size, key, value);
  }
}

Attention::Attention(const Kernels& kernels, const Cache& cache, int layer, Sight sight, Columns q, Columns out)
    : kernels_(kernels),
      cache_(cache),
      layer_(layer),
      sight_(sight),
      num_shared_(q.num_columns / (cache.shape().num_kv_heads * cache.shape().head_dim)),
      q_(q),
      out_(out) {
  if (num_shared_ < 1 || num_shared_ > kMaxQueries) throw std::invalid_argument("too many heads share a KV head");
}

int Attention::num_tasks(const Step& step) const {
  return static_cast<int>(step.shares[share()].groups.size()) * cache_.shape().num_kv_heads;
}

void attend(const Kernels& kernels, const Cache& cache, int layer, Sight sight, int num_shared, const RowGroup& group,
            int kv_head, const float* q, std::ptrdiff_t q_stride, const std::int32_t* block_lines, RowOut out,
            std::ptrdiff_t out_stride, Scratch& scratch) {
  const CacheShape& shape = cache.shape();
  const std::ptrdiff_t column = std::ptrdiff_t{kv_head} * num_shared * shape.head_dim;
  if (out.wide != nullptr) out.wide += column;
  if (out.narrow != nullptr) out.narrow += column;
  kernels.attention({q + column, q_stride, group.num_rows, num_shared, group.first_position,
                     sight.end_of(group), sight.both_sides, sight.window,
                     1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
                     HeadCache{cache.layer(layer, 0) + kv_head * cache.head_stride(), cache.value_offset(),
                               shape.block_size, shape.head_dim},
                     block_lines, out, out_stride, scratch.attention.as<float>()});
}

void Attention::run(int task, const Step& step, Scratch& scratch) const {
  const int num_kv_heads = cache_.shape().num_kv_heads;
  const RowGroup& group = step.groups[step.shares[share()].groups[task / num_kv_heads]];
  attend(kernels_, cache_, layer_, sight_, num_shared_, group, task % num_kv_heads, q_.wide(group.first_row), q_.stride,
         step.block_lines.data() + group.table, out_.out(group.first_row), out_.stride, scratch);
}

int MoveBlocks::num_tasks(const Step& step) const {
  const bool has_moves = !step.swaps_out.empty() || !step.copies.empty() || !step.swaps_in.empty();
  return has_moves ? cache_.shape().num_layers : 0;
}

void MoveBlocks::run(int layer, const Step& step, Scratch& scratch) const {
  const std::size_t num_bytes = static_cast<std::size_t>(cache_.layer_stride()) * sizeof(Bf16);
  const auto here = [&](std::int32_t line) { return cache_.arena().line(line) + layer * num_bytes; };
  const auto there = [&](std::int32_t line) { return cache_.host().line(line) + layer * num_bytes; };
  for (const Move& move : step.swaps_out) std::memcpy(there(move.destination), here(move.source), num_bytes);
  // all sources are read before any destination is written: one copy's destination may be another's source
  scratch.staging.resize(step.copies.size() * num_bytes);
  std::byte* staged = scratch.staging.data();
  for (const Move& move : step.copies) {
    std::memcpy(staged, here(move.source), num_bytes);
    staged += num_bytes;
  }
  staged = scratch.staging.data();
  for (const Move& move : step.copies) {
    std::memcpy(here(move.destination), staged, num_bytes);
    staged += num_bytes;
  }
  for (const Move& move : step.swaps_in) std::memcpy(here(move.destination), there(move.source), num_bytes);
}

CopyOut::CopyOut(const Cache& cache, int layer, int first, int end, int count)
    : cache_(cache), layer_(layer), first_(first), end_(end), count_(count) {
  if (layer < 0 || layer >= cache.shape().num_layers || first < 0 || first >= end || end > count)
    throw std::invalid_argument("a copy out is of a layer, from one fraction of the blocks to a later one");
}

std::int64_t CopyOut::place(int part, const Step& step) const {
  return static_cast<std::int64_t>(step.copies_out.size()) * part / count_;
}

int CopyOut::num_tasks(const Step& step) const { return static_cast<int>(place(end_, step) - place(first_, step)); }

void CopyOut::run(int task, const Step& step, Scratch&) const {
  const std::size_t num_bytes = static_cast<std::size_t>(cache_.layer_stride()) * sizeof(Bf16);
  const Move& move = step.copies_out[place(first_, step) + task];
  std::memcpy(cache_.host().line(move.destination) + layer_ * num_bytes,
              cache_.arena().line(move.source) + layer_ * num_bytes, num_bytes);
}

}  // namespace treadle
