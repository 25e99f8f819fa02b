// Packed int8 weights to pairs of bfloat16, which holds these integers exactly.
#pragma once

#include <array>

#include "simd.h"

namespace treadle::TREADLE_LEVEL {

#if TREADLE_DOT

// The lower and the upper byte of the bfloat16 of each size; a size has 7 bits, as many as a lookup takes.
struct SizeBytes {
  alignas(64) std::array<std::uint8_t, 128> lower{}, upper{};

  constexpr SizeBytes() {
    for (int size = 1; size < 128; ++size) {
      int exponent = 0;
      while (size >> (exponent + 1) != 0) ++exponent;
      const int bits = (127 + exponent) << 7 | ((size << (7 - exponent)) & 0x7f);
      lower[size] = static_cast<std::uint8_t>(bits);
      upper[size] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
};

// All 64 weights of a pair of inputs in five instructions: two lookups, the sign, two interleavings. The tables stay in
// registers. (Converting to float and back takes twelve, measured: 4 rows at 65 then 91 billion products a second.)
class Widening {
 public:
  TREADLE_INLINE_MEMBER Widening()
      : tables_{at(kBytes.lower, 0), at(kBytes.lower, 64), at(kBytes.upper, 0), at(kBytes.upper, 64)} {}

  TREADLE_INLINE_MEMBER Bits operator()(const std::uint8_t* pair, int column) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c), as a truth table
    const auto codes = load<__m512i>(pair);
    const __m512i lower = _mm512_permutex2var_epi8(tables_[0], codes, tables_[1]);
    const __m512i upper = _mm512_permutex2var_epi8(tables_[2], codes, tables_[3]);
    const __m512i with_sign =
        _mm512_ternarylogic_epi32(upper, codes, _mm512_set1_epi8(static_cast<char>(kSignBit)), kOrAnd);
    return bit_cast<Bits>(column == 0 ? _mm512_unpacklo_epi8(lower, with_sign)
                                      : _mm512_unpackhi_epi8(lower, with_sign));
  }

 private:
  static constexpr SizeBytes kBytes{};

  static TREADLE_INLINE_MEMBER __m512i at(const std::array<std::uint8_t, 128>& table, int first) {
    return load<__m512i>(table.data() + first);
  }

  __m512i tables_[4];
};

#else

// The upper half of a float is its bfloat16, and the lower half of a small integer's is empty.
struct Widening {
  TREADLE_INLINE_MEMBER Bits operator()(const std::uint8_t* pair, int column) const {
    Halves codes;
    for (int lane = 0; lane < kLanes; lane += kPlaceColumns)
      std::memcpy(reinterpret_cast<Bf16*>(&codes) + lane, pair + int8_place(column * kLanes + lane, 0),
                  kPlaceColumns * sizeof(Bf16));
    const Bits both = __builtin_convertvector(codes, Bits);
    return widened(both & 0xff) >> 16 | widened(both >> 8);
  }

  static TREADLE_INLINE_MEMBER Bits widened(Bits code) {
    const Bits size = bit_cast<Bits>(__builtin_convertvector(bit_cast<Ints>(code & (kSignBit - 1u)), Floats));
    return size | (code & kSignBit) << 24;
  }
};

#endif

}  // namespace treadle::TREADLE_LEVEL
