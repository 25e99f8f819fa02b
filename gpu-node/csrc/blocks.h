// Blocks of quantised numbers, as GGUF files hold them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace treadle {

// The numbers of `num_blocks` blocks of a type, by its number in the format (ggml.h), float32. False where the type is
// none of those that are read here. Each number is rounded once: scales have 11 bits or, times another, 19, and no
// product with a quantised number needs more than the 24 that float32 has.
bool read_blocks(int type, const std::uint8_t* blocks, std::ptrdiff_t num_blocks, float* to);

}  // namespace treadle
