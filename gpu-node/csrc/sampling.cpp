#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "candidates.h"
#include "counter.h"
#include "cutoff.h"

namespace treadle {
namespace {

constexpr double kNoBound = -std::numeric_limits<double>::infinity();

std::span<const float> chunk_of(std::span<const float> logits, std::size_t chunk) {
  const std::size_t first = chunk * kChunkLogits;
  return logits.subspan(first, std::min<std::size_t>(kChunkLogits, logits.size() - first));
}

// One draw from one row.
class Sampler {
 public:
  Sampler(const SurveyedRow& row, const DrawInput& how, const Kernels& kernels, SamplingScratch& scratch)
      : row_(row), how_(how), kernels_(kernels), scratch_(scratch), scale_{row.most(), how.temperature, kNoBound} {}

  std::int32_t draw() {
    const double least_by_min_p = how_.min_p > 0.0 ? scale_.most + how_.temperature * std::log(how_.min_p) : kNoBound;
    const bool has_rank = how_.top_k > 0 || how_.top_p < 1.0;
    const Candidates candidates = row_.at_least(has_rank ? bound_of_ranked() : least_by_min_p, scratch_);
    scale_.least = has_rank ? std::max<double>(least_by_min_p, least_by_rank(candidates.logits)) : least_by_min_p;
    return candidates.token(pick(candidates.logits));
  }

 private:
  // A bound below which top-k and top-p keep nothing.
  double bound_of_ranked() {
    if (how_.top_k > 0) return row_.bound_of_most(static_cast<std::size_t>(how_.top_k), scratch_);
    // if each of all tokens weighed less than a share of what top-p leaves out, they would together be left out; half
    // of that share, so that no rounding matters
    total_ = weigh_chunks(row_.logits, scale_, kernels_, scratch_);
    const double share = (1.0 - how_.top_p) * total_ / static_cast<double>(row_.logits.size()) / 2.0;
    return scale_.most + how_.temperature * std::log(share);
  }

  float least_by_rank(std::span<const float> candidates) {
    std::vector<float>& ranked = scratch_.ranked;
    ranked.assign(candidates.begin(), candidates.end());
    double whole = total_;
    if (how_.top_k > 0) {
      const float least = cutoff(ranked, how_.top_k, count, scratch_.bins);
      if (how_.top_p >= 1.0) return least;
      ranked.clear();
      std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(ranked),
                   [&](float logit) { return logit > least; });
      ranked.resize(std::min<std::size_t>(how_.top_k, candidates.size()), least);  // of equals, as many as make top-k
      whole = weigh_chunks(ranked, scale_, kernels_, scratch_);
    }
    const Measure weigh = [&](std::span<const float> logits, double* weights) {
      kernels_.weigh(logits.data(), static_cast<int>(logits.size()), scale_, weights);
    };
    return cutoff(ranked, how_.top_p * whole, weigh, scratch_.bins);
  }

  static void count(std::span<const float> logits, double* amounts) { std::fill_n(amounts, logits.size(), 1.0); }

  // Index of the first candidate whose cumulative weight is above the uniform part of the whole. The last that weighs
  // anything, where that part is rounded up to the whole.
  std::size_t pick(std::span<const float> candidates) {
    const double whole = weigh_chunks(candidates, scale_, kernels_, scratch_);
    const double target = uniform(how_.seed, static_cast<std::uint64_t>(how_.choice),
                                  static_cast<std::uint64_t>(how_.position)) * whole;
    const std::vector<double>& sums = scratch_.sums;
    std::size_t chosen = 0;
    double before = 0.0, next = 0.0;
    for (std::size_t chunk = 0; chunk < sums.size(); ++chunk) {
      if (sums[chunk] == 0.0) continue;
      chosen = chunk;
      before = next;
      next += sums[chunk];
      if (next > target) break;
    }
    const auto logits = chunk_of(candidates, chosen);
    double weights[kChunkLogits];
    kernels_.weigh(logits.data(), static_cast<int>(logits.size()), scale_, weights);
    std::size_t found = 0;
    for (std::size_t i = 0; i < logits.size() && before <= target; ++i) {
      if (weights[i] > 0.0) found = i;
      before += weights[i];
    }
    return chosen * kChunkLogits + found;
  }

  const SurveyedRow& row_;
  const DrawInput& how_;
  const Kernels& kernels_;
  SamplingScratch& scratch_;
  Scale scale_;
  double total_ = 0.0;  // weight of the row, where top-p asks for it
};

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const DrawInput& how, const Kernels& kernels,
                        SamplingScratch& scratch) {
  if (how.temperature == 0.0) return kernels.argmax(logits.data(), static_cast<int>(logits.size()));
  SurveyedRow row;
  if (!survey(logits, kernels, scratch, row)) return -1;
  return Sampler(row, how, kernels, scratch).draw();
}

double weigh_chunks(std::span<const float> logits, const Scale& scale, const Kernels& kernels,
                    SamplingScratch& scratch) {
  double weights[kChunkLogits];
  double whole = 0.0;
  scratch.sums.clear();
  for (std::size_t chunk = 0; chunk * kChunkLogits < logits.size(); ++chunk) {
    const auto some = chunk_of(logits, chunk);
    scratch.sums.push_back(kernels.weigh(some.data(), static_cast<int>(some.size()), scale, weights));
    whole += scratch.sums.back();
  }
  return whole;
}

}  // namespace treadle
