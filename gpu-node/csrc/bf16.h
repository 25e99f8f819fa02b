// Bfloat16: the upper half of a float. Stored as bits; arithmetic is always done in float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace treadle {

using Bf16 = std::uint16_t;

constexpr int kPair = 2;  // products take inputs two by two: the layout that dot-product instructions want

}  // namespace treadle
