// Vectors of one processor level, in the compiler's own vector types. Included by the level files only, each of which
// sets TREADLE_LEVEL (a namespace, so that no function of one level is ever taken for that of another), TREADLE_LANES
// and TREADLE_DOT (whether there are a bfloat16 dot product and a lookup among 128 bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels.h"

#define TREADLE_INLINE static inline __attribute__((always_inline))
#define TREADLE_INLINE_MEMBER inline __attribute__((always_inline))

namespace treadle::TREADLE_LEVEL {

constexpr int kLanes = TREADLE_LANES;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Bits __attribute__((vector_size(4 * kLanes)));
typedef Bf16 Halves __attribute__((vector_size(2 * kLanes)));

template <typename T>
TREADLE_INLINE T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
TREADLE_INLINE void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename To, typename From>
TREADLE_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return load<To>(&from);
}

TREADLE_INLINE Floats broadcast(float value) { return Floats{} + value; }

TREADLE_INLINE Floats load_bf16(const Bf16* from) {
  return bit_cast<Floats>(__builtin_convertvector(load<Halves>(from), Bits) << 16);
}

// Round to nearest, ties to even; a NaN stays one.
TREADLE_INLINE void store_bf16(Bf16* to, Floats value) {
#if TREADLE_DOT
  store(to, _mm512_cvtneps_pbh(value));
#else
  const Bits bits = bit_cast<Bits>(value);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  store(to, __builtin_convertvector(value == value ? rounded : (bits >> 16) | 0x40, Halves));
#endif
}

TREADLE_INLINE Bf16 to_bf16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  return static_cast<Bf16>(value == value ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : (bits >> 16) | 0x40);
}

TREADLE_INLINE float to_float(Bf16 value) { return bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

// In each lane: sum + x0 * w0 + x1 * w1, for the pair (x0, x1) and the lane's own pair (w0, w1).
TREADLE_INLINE Floats add_pair(Floats sum, Bits x, Bits w) {
#if TREADLE_DOT
  return _mm512_dpbf16_ps(sum, bit_cast<__m512bh>(x), bit_cast<__m512bh>(w));
#else
  sum += bit_cast<Floats>(x << 16) * bit_cast<Floats>(w << 16);
  sum += bit_cast<Floats>(x & 0xffff0000u) * bit_cast<Floats>(w & 0xffff0000u);
  return sum;
#endif
}

// Lane after lane of two rows of values as pairs (even, odd).
TREADLE_INLINE void load_pairs(const Bf16* even, const Bf16* odd, Bits (&pairs)[2]) {
#if TREADLE_DOT
  typedef Bf16 Both __attribute__((vector_size(64)));
  constexpr auto kOrder = [](int first) {
    Both order{};
    for (int i = 0; i < 32; ++i) order[i] = static_cast<Bf16>(i % 2 * 32 + first + i / 2);
    return order;
  };
  const auto a = load<__m512i>(even), b = load<__m512i>(odd);
  pairs[0] = bit_cast<Bits>(_mm512_permutex2var_epi16(a, bit_cast<__m512i>(kOrder(0)), b));
  pairs[1] = bit_cast<Bits>(_mm512_permutex2var_epi16(a, bit_cast<__m512i>(kOrder(16)), b));
#else
  for (int v = 0; v < 2; ++v)
    pairs[v] = __builtin_convertvector(load<Halves>(even + v * kLanes), Bits) |
               __builtin_convertvector(load<Halves>(odd + v * kLanes), Bits) << 16;
#endif
}

TREADLE_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

template <int Lanes>
struct Vector {
  typedef float Type __attribute__((vector_size(4 * Lanes)));
};

// Combines all lanes, half with half: the same order on every call.
template <int Lanes, typename Combine>
TREADLE_INLINE float fold(typename Vector<Lanes>::Type value, Combine combine) {
  if constexpr (Lanes == 1) {
    return value[0];
  } else {
    struct Both {
      typename Vector<Lanes / 2>::Type low, high;
    };
    const Both both = bit_cast<Both>(value);
    return fold<Lanes / 2>(combine(both.low, both.high), combine);
  }
}

struct Sum {
  template <typename T>
  TREADLE_INLINE_MEMBER T operator()(T a, T b) const { return a + b; }
};

struct Most {
  template <typename T>
  TREADLE_INLINE_MEMBER T operator()(T a, T b) const { return a > b ? a : b; }
};

TREADLE_INLINE float total(Floats value) { return fold<kLanes>(value, Sum{}); }

TREADLE_INLINE float largest(Floats value) { return fold<kLanes>(value, Most{}); }

TREADLE_INLINE Ints lane_numbers() {
  Ints numbers;
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = lane;
  return numbers;
}

// e ** x within 2 units in the last place: 2 ** n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes). 0 below the
// normal numbers, infinite above 2 ** 127; a NaN stays one.
TREADLE_INLINE Floats exponential(Floats x) {
  constexpr float kLeast = -87.33654F, kMost = 88.37626F, kRound = 12582912.0F;  // 1.5 * 2 ** 23 rounds to an integer
  const Floats clamped = x < kLeast ? broadcast(kLeast) : x > kMost ? broadcast(kMost) : x;
  const Floats shifted = clamped * 1.44269504F + kRound;
  const Floats n = shifted - kRound;
  const Floats r = clamped - n * 0.693359375F + n * 2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Floats power = bit_cast<Floats>((bit_cast<Ints>(shifted) - bit_cast<Ints>(broadcast(kRound)) + 127) << 23);
  return x < kLeast ? broadcast(0.0F) : x > kMost ? broadcast(__builtin_inff()) : p * power;
}

// 2 ** x for x <= 0, within 3e-6 of its value: 2 ** n times a polynomial on [-1/2, 1/2]. 0 below the normal numbers.
TREADLE_INLINE Floats power_of_two(Floats x) {
  constexpr float kLeast = -126.0F, kRound = 12582912.0F;
  const Floats clamped = larger(x, broadcast(kLeast));
  const Floats shifted = clamped + kRound;
  const Floats f = clamped - (shifted - kRound);
  Floats p = f * 1.33335581e-3F + 9.61812911e-3F;
  p = p * f + 5.55041087e-2F;
  p = p * f + 2.40226507e-1F;
  p = p * f + 6.93147181e-1F;
  p = p * f + 1.0F;
  const Floats scaled = bit_cast<Floats>(bit_cast<Ints>(p) + (bit_cast<Ints>(shifted) << 23));
  return x < kLeast ? Floats{} : scaled;
}

TREADLE_INLINE Floats silu(Floats x) { return x / (1.0F + exponential(-x)); }

// Panels of bfloat16: vector `column` of pair `pair`, V vectors from each panel.
template <int V>
struct Bf16Panels {
  const Bf16* const* panels;
  std::ptrdiff_t stride;  // numbers from one pair to the next

  TREADLE_INLINE_MEMBER Bits operator()(std::ptrdiff_t pair, int column) const {
    return load<Bits>(panels[column / V] + pair * stride + column % V * kPair * kLanes);
  }
};

// Asks for a line into the second cache. Its callers are inlined by force: to the compiler, a function that only
// prefetches is one without effect, and a call to it is left out.
TREADLE_INLINE void fetch_line(const void* from) { __builtin_prefetch(from, 0, 2); }

struct NoFetch {
  TREADLE_INLINE_MEMBER void operator()(std::ptrdiff_t) const {}
};

// sums[r][c] = products of row r of `a` with vector c of the panels, pair after pair in their order. `fetch` is called
// with the number of each pair, to ask for memory that is wanted later.
template <int R, int C, typename Panels, typename Fetch = NoFetch>
TREADLE_INLINE void multiply_panels(const Bf16* a, std::ptrdiff_t a_stride, const Panels& panels,
                                    std::ptrdiff_t num_pairs, Floats (&sums)[R][C], const Fetch& fetch = {}) {
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r][c] = Floats{};
  for (std::ptrdiff_t pair = 0; pair < num_pairs; ++pair) {
    fetch(pair);
    Bits w[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) w[c] = panels(pair, c);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Bits x = Bits{} + load<std::uint32_t>(a + r * a_stride + kPair * pair);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = add_pair(sums[r][c], x, w[c]);
    }
  }
}

// Calls body.run<R>(first_row) for consecutive groups of at most Most rows, of nearly the same size.
template <int R, typename Body>
TREADLE_INLINE void run_rows(const Body& body, int first, int num_rows) {
  if (num_rows == R) {
    body.template run<R>(first);
  } else if constexpr (R > 1) {
    run_rows<R - 1>(body, first, num_rows);
  }
}

template <int Most, typename Body>
TREADLE_INLINE void for_row_groups(const Body& body, int num_rows) {
  for (int first = 0, left = num_rows; left > 0;) {
    const int num_groups = (left + Most - 1) / Most;
    const int size = (left + num_groups - 1) / num_groups;
    run_rows<Most>(body, first, size);
    first += size;
    left -= size;
  }
}

}  // namespace treadle::TREADLE_LEVEL
