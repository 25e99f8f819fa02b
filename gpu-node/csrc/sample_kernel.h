// What drawing a token does to all logits of a row: the largest of each chunk, and their weights in double precision,
// with which a draw falls as it does in the reference.
#pragma once

#include "simd.h"

namespace treadle::TREADLE_LEVEL {

constexpr int kWideLanes = kLanes / 2;

typedef float NarrowFloats __attribute__((vector_size(4 * kWideLanes)));
typedef double Doubles __attribute__((vector_size(8 * kWideLanes)));
typedef std::int64_t Longs __attribute__((vector_size(8 * kWideLanes)));

// e ** x within 2 units in the last place, for x up to 0: 2 ** n times the Taylor series on [-ln 2 / 2, ln 2 / 2], whose
// next term is below 2 ** -52. 0 below e ** -708, where the normal numbers end.
TREADLE_INLINE Doubles exponential_of_negative(Doubles x) {
  constexpr double kLeast = -708.0, kRound = 0x1.8p52;  // added, it rounds to an integer
  constexpr double kHighLn2 = 0x1.62e42fefap-1, kLowLn2 = 0x1.cf79abc9e3b39p-40;  // the high part times n is exact
  constexpr double kInverseFactorials[] = {
      1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6,
      0.5,            1.0,           1.0};
  const Doubles clamped = x > kLeast ? x : Doubles{} + kLeast;
  const Doubles shifted = clamped * 0x1.71547652b82fep0 + kRound;
  const Doubles n = shifted - kRound;
  const Doubles r = clamped - n * kHighLn2 - n * kLowLn2;
  Doubles sum = Doubles{} + 1.0 / 479001600;
#pragma GCC unroll 12
  for (const double factor : kInverseFactorials) sum = sum * r + factor;
  const Longs exponent = bit_cast<Longs>(shifted) - bit_cast<Longs>(Doubles{} + kRound) + 1023;
  return x > kLeast ? sum * bit_cast<Doubles>(exponent << 52) : Doubles{};
}

TREADLE_INLINE Doubles weights_of(NarrowFloats logits, const Scale& scale) {
  const Doubles wide = __builtin_convertvector(logits, Doubles);
  const Doubles weights = exponential_of_negative((wide - scale.most) / scale.temperature);
  return wide < scale.least ? Doubles{} : weights;
}

static double weigh(const float* logits, int num_logits, const Scale& scale, double* weights) {
  Doubles sums{};
  int i = 0;
  for (; i + kWideLanes <= num_logits; i += kWideLanes) {
    const Doubles some = weights_of(load<NarrowFloats>(logits + i), scale);
    store(weights + i, some);
    sums += some;
  }
  if (i < num_logits) {
    NarrowFloats rest = NarrowFloats{} - __builtin_inff();  // which weighs nothing
    std::memcpy(&rest, logits + i, (num_logits - i) * sizeof(float));
    const Doubles some = weights_of(rest, scale);
    std::memcpy(weights + i, &some, (num_logits - i) * sizeof(double));
    sums += some;
  }
  double sum = 0.0;
  for (int lane = 0; lane < kWideLanes; ++lane) sum += sums[lane];
  return sum;
}

static bool find_maxima(const float* logits, int num_logits, float* maxima) {
  Floats zeros{};  // x * 0 is 0, or NaN where x is not finite
  float rest = 0.0F;
  for (int first = 0; first < num_logits; first += kChunkLogits, ++maxima) {
    const int end = first + kChunkLogits < num_logits ? first + kChunkLogits : num_logits;
    Floats most = broadcast(-__builtin_inff());
    int i = first;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats value = load<Floats>(logits + i);
      most = larger(value, most);
      zeros += value * 0.0F;
    }
    *maxima = largest(most);
    for (; i < end; ++i) {
      *maxima = logits[i] > *maxima ? logits[i] : *maxima;
      rest += logits[i] * 0.0F;
    }
  }
  return total(zeros) + rest == 0.0F;
}

}  // namespace treadle::TREADLE_LEVEL
