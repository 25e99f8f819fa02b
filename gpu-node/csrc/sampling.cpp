#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "candidates.h"
#include "counter.h"
#include "cutoff.h"
#include "token_mask.h"

namespace treadle {
namespace {

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
    if (how_.min_p > 0.0) scale_.least = scale_.most + how_.temperature * std::log(how_.min_p);
    if (how_.top_k > 0) {
      const Candidates top = row_.at_least(row_.bound_of_most(how_.top_k, scratch_), scratch_);
      raise_least(least_of_top_k(top.logits));
      return top.token(pick(top.logits));
    }
    if (how_.top_p < 1.0) raise_least(least_of_nucleus(row_.logits));
    const Candidates kept = row_.at_least(scale_.least, scratch_);
    return kept.token(pick(kept.logits));
  }

 private:
  void raise_least(float least) { scale_.least = std::max<double>(scale_.least, least); }

  float least_of_top_k(std::span<const float> logits) {
    const auto num_wanted = static_cast<double>(how_.top_k);
    const float least = cutoff(logits, range_of(logits), count, [&](double) { return num_wanted; }, scratch_);
    if (how_.top_p >= 1.0) return least;
    std::vector<float>& top = scratch_.top;
    top.clear();
    std::copy_if(logits.begin(), logits.end(), std::back_inserter(top), [&](float logit) { return logit > least; });
    top.resize(std::min<std::size_t>(how_.top_k, logits.size()), least);  // of equals, as many as make the top k
    return least_of_nucleus(top);
  }

  // The nucleus lies above what all tokens would have to weigh at most to be left out together. Half of that, so that no
  // rounding matters.
  float least_of_nucleus(std::span<const float> logits) {
    const double share = (1.0 - how_.top_p) / static_cast<double>(logits.size()) / 2.0;
    const double least = scale_.most + how_.temperature * std::log(share);
    const Range range{static_cast<float>(scale_.most), static_cast<float>(least)};
    const Scale all{scale_.most, scale_.temperature, kNoBound};
    const Measure weigh = [&](std::span<const float> some, double* weights) {
      kernels_.weigh(some.data(), static_cast<int>(some.size()), all, weights);
    };
    return cutoff(logits, range, weigh, [&](double whole) { return how_.top_p * whole; }, scratch_);
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
};

// Index of the logit whose token is drawn, or -1 where one is not finite.
std::int32_t draw_index(std::span<const float> logits, const DrawInput& how, const Kernels& kernels,
                        SamplingScratch& scratch) {
  if (how.temperature == 0.0) return kernels.argmax(logits.data(), static_cast<int>(logits.size()));
  SurveyedRow row;
  if (!survey(logits, kernels, scratch, row)) return -1;
  return Sampler(row, how, kernels, scratch).draw();
}

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const TokenDraw& draw, const Kernels& kernels,
                        SamplingScratch& scratch) {
  if (draw.mask.empty()) return draw_index(logits, draw.how, kernels, scratch);
  // from a row of the allowed logits alone: no number has to stand for one that may not be drawn
  SurveyedRow row;
  if (!survey(logits, kernels, scratch, row)) return -1;
  const Candidates allowed = allowed_logits(logits, draw.mask, scratch);
  return allowed.token(static_cast<std::size_t>(draw_index(allowed.logits, draw.how, kernels, scratch)));
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
