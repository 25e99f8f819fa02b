#include "cutoff.h"

#include <algorithm>

#include "kernels.h"

namespace treadle {
namespace {

constexpr std::size_t kFewLogits = 256;  // are put in order; more are first thrown into bins
constexpr std::size_t kNumBins = 1024;

// Equal parts of the range from the largest logit down to the least.
class Bins {
 public:
  Bins(float most, float least) : most_(most), per_logit_(kNumBins / (static_cast<double>(most) - least)) {}

  // Never larger for a larger logit; of the largest it is the first, of the least the last.
  std::size_t of(float logit) const {
    return std::min(kNumBins - 1, static_cast<std::size_t>((most_ - logit) * per_logit_));
  }

 private:
  double most_;
  double per_logit_;
};

template <typename Body>
void for_chunks(std::span<const float> logits, const Measure& measure, const Body& body) {
  double amounts[kChunkLogits];
  for (std::size_t first = 0; first < logits.size(); first += kChunkLogits) {
    const auto chunk = logits.subspan(first, std::min<std::size_t>(kChunkLogits, logits.size() - first));
    measure(chunk, amounts);
    for (std::size_t i = 0; i < chunk.size(); ++i)
      if (body(chunk[i], amounts[i])) return;
  }
}

}  // namespace

float cutoff(std::vector<float>& logits, double target, const Measure& measure, std::vector<double>& amounts) {
  double above = 0.0;  // of the logits that were in the bins before
  while (logits.size() > kFewLogits) {
    const auto [least, most] = std::minmax_element(logits.begin(), logits.end());
    if (*least == *most) return *most;
    const Bins bins(*most, *least);
    amounts.assign(kNumBins, 0.0);
    for_chunks(logits, measure, [&](float logit, double amount) {
      amounts[bins.of(logit)] += amount;
      return false;
    });
    std::size_t crossing = 0;
    while (crossing + 1 < kNumBins && above + amounts[crossing] < target) above += amounts[crossing++];
    std::erase_if(logits, [&](float logit) { return bins.of(logit) != crossing; });
  }
  std::sort(logits.begin(), logits.end(), std::greater<>());
  float found = logits.back();
  for_chunks(logits, measure, [&](float logit, double amount) {
    above += amount;
    if (above < target) return false;
    found = logit;
    return true;
  });
  return found;
}

}  // namespace treadle
