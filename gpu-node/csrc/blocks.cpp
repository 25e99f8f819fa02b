#include "blocks.h"

#include <cstring>

namespace treadle {
namespace {

constexpr int kSmall = 32, kLarge = 256;  // numbers of a block

float half(const std::uint8_t* from) {
  std::uint16_t number;
  std::memcpy(&number, from, sizeof number);
  constexpr std::uint32_t kExponent = 0x7c00, kAllOnes = 0x7f800000;
  std::uint32_t bits = std::uint32_t{number} << 13 & 0x0fffe000;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  value *= 0x1p112f;  // the difference of both formats' exponents; makes subnormal numbers right, too
  std::memcpy(&bits, &value, sizeof bits);
  if ((number & kExponent) == kExponent) bits |= kAllOnes;
  bits |= std::uint32_t(number & 0x8000) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Numbers of 4 bits: those of the first half of a block are the low ones.
struct Q4_0 {
  static constexpr int kNumbers = kSmall, kBytes = 18;
  static void read(const std::uint8_t* block, float* to) {
    const float scale = half(block);
    for (int i = 0; i < kSmall / 2; ++i) {
      to[i] = scale * float((block[2 + i] & 15) - 8);
      to[i + kSmall / 2] = scale * float((block[2 + i] >> 4) - 8);
    }
  }
};

struct Q4_1 {
  static constexpr int kNumbers = kSmall, kBytes = 20;
  static void read(const std::uint8_t* block, float* to) {
    const float scale = half(block), least = half(block + 2);
    for (int i = 0; i < kSmall / 2; ++i) {
      to[i] = scale * float(block[4 + i] & 15) + least;
      to[i + kSmall / 2] = scale * float(block[4 + i] >> 4) + least;
    }
  }
};

// The fifth bits of a block stand together.
std::uint32_t fifth_bits(const std::uint8_t* from) {
  std::uint32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

struct Q5_0 {
  static constexpr int kNumbers = kSmall, kBytes = 22;
  static void read(const std::uint8_t* block, float* to) {
    const float scale = half(block);
    const std::uint32_t high = fifth_bits(block + 2);
    for (int i = 0; i < kSmall / 2; ++i) {
      to[i] = scale * float(int((block[6 + i] & 15) | (high >> i & 1) << 4) - 16);
      to[i + kSmall / 2] = scale * float(int((block[6 + i] >> 4) | (high >> (i + kSmall / 2) & 1) << 4) - 16);
    }
  }
};

struct Q5_1 {
  static constexpr int kNumbers = kSmall, kBytes = 24;
  static void read(const std::uint8_t* block, float* to) {
    const float scale = half(block), least = half(block + 2);
    const std::uint32_t high = fifth_bits(block + 4);
    for (int i = 0; i < kSmall / 2; ++i) {
      to[i] = scale * float(int((block[8 + i] & 15) | (high >> i & 1) << 4)) + least;
      to[i + kSmall / 2] = scale * float(int((block[8 + i] >> 4) | (high >> (i + kSmall / 2) & 1) << 4)) + least;
    }
  }
};

struct Q8_0 {
  static constexpr int kNumbers = kSmall, kBytes = 34;
  static void read(const std::uint8_t* block, float* to) {
    const float scale = half(block);
    for (int i = 0; i < kSmall; ++i) to[i] = scale * float(static_cast<std::int8_t>(block[2 + i]));
  }
};

// Scale and minimum of each eighth of a block of 256, 6 bits each, in 12 bytes: the first four eighths have theirs in
// a byte, whose two upper bits belong to the other four.
struct Eighths {
  float scales[8], minima[8];
  explicit Eighths(const std::uint8_t* block) {
    const float scale = half(block), minimum = half(block + 2);
    const std::uint8_t *low = block + 4, *middle = low + 4, *rest = low + 8;
    for (int i = 0; i < 4; ++i) {
      scales[i] = scale * float(low[i] & 63);
      minima[i] = minimum * float(middle[i] & 63);
      scales[i + 4] = scale * float((rest[i] & 15) | (low[i] >> 2 & 48));
      minima[i + 4] = minimum * float(rest[i] >> 4 | (middle[i] >> 2 & 48));
    }
  }
};

struct Q4_K {
  static constexpr int kNumbers = kLarge, kBytes = 144;
  static void read(const std::uint8_t* block, float* to) {
    const Eighths eighths(block);
    const std::uint8_t* from = block + 16;
    for (int eighth = 0; eighth < 8; eighth += 2, from += 32, to += 64) {
      for (int i = 0; i < 32; ++i) {
        to[i] = eighths.scales[eighth] * float(from[i] & 15) - eighths.minima[eighth];
        to[i + 32] = eighths.scales[eighth + 1] * float(from[i] >> 4) - eighths.minima[eighth + 1];
      }
    }
  }
};

struct Q5_K {
  static constexpr int kNumbers = kLarge, kBytes = 176;
  static void read(const std::uint8_t* block, float* to) {
    const Eighths eighths(block);
    const std::uint8_t *high = block + 16, *from = high + 32;
    for (int eighth = 0; eighth < 8; eighth += 2, from += 32, to += 64) {
      for (int i = 0; i < 32; ++i) {
        const int low = (from[i] & 15) | (high[i] >> eighth & 1) << 4;
        const int upper = from[i] >> 4 | (high[i] >> (eighth + 1) & 1) << 4;
        to[i] = eighths.scales[eighth] * float(low) - eighths.minima[eighth];
        to[i + 32] = eighths.scales[eighth + 1] * float(upper) - eighths.minima[eighth + 1];
      }
    }
  }
};

struct Q6_K {
  static constexpr int kNumbers = kLarge, kBytes = 210;
  static void read(const std::uint8_t* block, float* to) {
    const std::uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float scale = half(block + 208);
    float own[16];
    for (int i = 0; i < 16; ++i) own[i] = scale * float(static_cast<std::int8_t>(scales[i]));
    // each half of the block has 128 numbers: four runs of 32, with 4 bits in `low` and 2 in `high`
    for (int run = 0; run < 8; ++run, to += 32) {
      const std::uint8_t* bits = low + run / 4 * 64 + run % 2 * 32;
      const int low_shift = run % 4 / 2 * 4, high_shift = run % 4 * 2;
      for (int first = 0; first < 32; first += 16) {
        const float part_scale = own[run * 2 + first / 16];
        for (int i = first; i < first + 16; ++i) {
          const int value = (bits[i] >> low_shift & 15) | (high[run / 4 * 32 + i] >> high_shift & 3) << 4;
          to[i] = part_scale * float(value - 32);
        }
      }
    }
  }
};

template <typename Block>
bool read_all(const std::uint8_t* blocks, std::ptrdiff_t num_blocks, float* to) {
  for (std::ptrdiff_t i = 0; i < num_blocks; ++i) Block::read(blocks + i * Block::kBytes, to + i * Block::kNumbers);
  return true;
}

}  // namespace

bool read_blocks(int type, const std::uint8_t* blocks, std::ptrdiff_t num_blocks, float* to) {
  switch (type) {
    case 2: return read_all<Q4_0>(blocks, num_blocks, to);
    case 3: return read_all<Q4_1>(blocks, num_blocks, to);
    case 6: return read_all<Q5_0>(blocks, num_blocks, to);
    case 7: return read_all<Q5_1>(blocks, num_blocks, to);
    case 8: return read_all<Q8_0>(blocks, num_blocks, to);
    case 12: return read_all<Q4_K>(blocks, num_blocks, to);
    case 13: return read_all<Q5_K>(blocks, num_blocks, to);
    case 14: return read_all<Q6_K>(blocks, num_blocks, to);
    default: return false;
  }
}

}  // namespace treadle
