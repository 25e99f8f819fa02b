// The table of a level, from the kernels compiled for it.
#pragma once

#include "attention_kernel.h"
#include "linear_kernel.h"
#include "row_kernels.h"
#include "sample_kernel.h"

#ifndef TREADLE_LINEAR
#define TREADLE_LINEAR linear
#endif

namespace treadle::TREADLE_LEVEL {

extern const Kernels kTable;
const Kernels kTable{TREADLE_NAME, TREADLE_LINEAR, attention, rms_norm, layer_norm, relu, gelu,
                     erf_gelu, tanh, silu_mul, erf_gelu_mul, add, rope, round, argmax, find_maxima, weigh};

}  // namespace treadle::TREADLE_LEVEL
