#include "cutoff.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels.h"

namespace treadle {
namespace {

constexpr std::size_t kFewLogits = 256;  // are put in order; more are first thrown into bins
constexpr int kNumBins = 512;

// Equal parts of a range, from the most down.
class Bins {
 public:
  explicit Bins(Range range)
      : most_(range.most), least_(range.least), per_logit_((kNumBins - 1) / (most_ - range.least)) {}

  // The bin of each logit: never less for a smaller one; 0 for the most, another for the least and whatever lies below.
  // A function of its own, which the compiler makes of vectors; inlined, it has a branch that half of a row takes.
  [[gnu::noinline]] void find(std::span<const float> logits, int* bins) const {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const float raised = logits[i] > least_ ? logits[i] : least_;
      bins[i] = static_cast<int>((most_ - raised) * per_logit_);
    }
  }

 private:
  double most_;
  float least_;
  double per_logit_;
};

// Calls body(chunk) for consecutive parts of `logits`.
template <typename Body>
void for_chunks(std::span<const float> logits, const Body& body) {
  for (std::size_t first = 0; first < logits.size(); first += kChunkLogits)
    body(logits.subspan(first, std::min<std::size_t>(kChunkLogits, logits.size() - first)));
}

// Amounts by bin; returns how much there is in all.
double fill_bins(std::span<const float> logits, const Bins& bins, const Measure& measure,
                 std::vector<double>& amounts) {
  // in turn: where many logits go to one bin, an addition does not wait for the one before
  constexpr int kTurns = 4;
  double parts[kNumBins][kTurns] = {};
  for_chunks(logits, [&](std::span<const float> chunk) {
    int places[kChunkLogits];
    double amounts_of_chunk[kChunkLogits];
    bins.find(chunk, places);
    measure(chunk, amounts_of_chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) parts[places[i]][i % kTurns] += amounts_of_chunk[i];
  });
  amounts.resize(kNumBins);
  for (int bin = 0; bin < kNumBins; ++bin) amounts[bin] = std::accumulate(parts[bin], parts[bin] + kTurns, 0.0);
  return std::accumulate(amounts.begin(), amounts.end(), 0.0);
}

// The first place at which `above` and the amounts so far come to `wanted`, or the last that counts at all where they
// never do. `above` then counts all before that place.
int find_crossing(const std::vector<double>& amounts, double wanted, double& above) {
  int found = 0;
  double before = above;
  for (std::size_t place = 0; place < amounts.size() && before < wanted; ++place) {
    if (amounts[place] == 0.0) continue;
    found = static_cast<int>(place);
    above = before;
    before += amounts[place];
  }
  return found;
}

// Those in one bin; `kept` may be where `logits` lie.
std::span<float> keep_bin(std::span<const float> logits, const Bins& bins, int bin, std::vector<float>& kept) {
  if (kept.size() < logits.size()) kept.resize(logits.size());
  std::size_t num_kept = 0;
  for_chunks(logits, [&](std::span<const float> chunk) {
    int places[kChunkLogits];
    bins.find(chunk, places);
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      kept[num_kept] = chunk[i];
      num_kept += places[i] == bin;
    }
  });
  return std::span(kept).first(num_kept);
}

}  // namespace

Range range_of(std::span<const float> logits) {
  constexpr std::size_t kAtOnce = 16;  // independent of each other
  float most[kAtOnce], least[kAtOnce];
  std::fill_n(most, kAtOnce, logits[0]);
  std::fill_n(least, kAtOnce, logits[0]);
  std::size_t first = 0;
  for (; first + kAtOnce <= logits.size(); first += kAtOnce) {
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      const float logit = logits[first + i];
      most[i] = logit > most[i] ? logit : most[i];
      least[i] = logit < least[i] ? logit : least[i];
    }
  }
  for (; first < logits.size(); ++first) {
    most[0] = std::max(most[0], logits[first]);
    least[0] = std::min(least[0], logits[first]);
  }
  return {*std::max_element(most, most + kAtOnce), *std::min_element(least, least + kAtOnce)};
}

float cutoff(std::span<const float> logits, Range range, const Measure& measure, const Target& target,
             SamplingScratch& scratch) {
  std::vector<double>& amounts = scratch.bins;
  double above = 0.0;    // of the logits in bins before
  double wanted = -1.0;  // until the whole is known
  while (logits.size() > kFewLogits && range.most != range.least) {
    const Bins bins(range);
    const double whole = fill_bins(logits, bins, measure, amounts);
    if (wanted < 0.0) wanted = target(whole);
    const int crossing = find_crossing(amounts, wanted, above);
    logits = keep_bin(logits, bins, crossing, scratch.ranked);
    range = range_of(logits);
  }
  if (range.most == range.least) return range.most;
  std::vector<float> few(logits.begin(), logits.end());
  std::sort(few.begin(), few.end(), std::greater<>());
  amounts.resize(few.size());
  measure(few, amounts.data());
  if (wanted < 0.0) wanted = target(std::accumulate(amounts.begin(), amounts.end(), 0.0));
  return few[find_crossing(amounts, wanted, above)];
}

}  // namespace treadle
