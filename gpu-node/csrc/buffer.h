// Places of numbers: buffers with one row for each token or draw, and weights packed for the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "memory.h"
#include "step.h"

namespace treadle {

enum class Type : std::int32_t { float32, bfloat16, int8 };  // int8: weights only

// Some columns of a buffer. Rows are padded to whole panels, so that kernels need no masks.
struct Columns {
  std::byte* data = nullptr;
  std::ptrdiff_t stride = 0;  // numbers from one row to the next
  int num_columns = 0;
  Type type = Type::float32;
  RowKind rows = RowKind::tokens;

  float* wide(std::ptrdiff_t row) const { return reinterpret_cast<float*>(data) + row * stride; }
  Bf16* narrow(std::ptrdiff_t row) const { return reinterpret_cast<Bf16*>(data) + row * stride; }
  RowOut out(std::ptrdiff_t row) const {
    return type == Type::float32 ? RowOut{wide(row), nullptr} : RowOut{nullptr, narrow(row)};
  }
};

// A linear weight as panels of 32 outputs, bfloat16 or int8 (see LinearTask). Where `halves` is set, a panel is 16
// outputs of the first half of the weight and the 16 of the second half that they gate.
struct PackedWeight {
  Type type = Type::bfloat16;
  std::byte* data = nullptr;
  float* scales = nullptr;  // [panels][32], of int8
  int num_outputs = 0;
  int num_inputs = 0;
  int num_panels = 0;
  bool halves = false;

  std::ptrdiff_t panel_numbers() const { return std::ptrdiff_t{num_inputs} * kPanelColumns; }
  std::ptrdiff_t panel_bytes() const { return panel_numbers() * (type == Type::int8 ? 1 : 2); }
  template <typename T>
  T* panel(int index) const {
    return reinterpret_cast<T*>(data + index * panel_bytes());
  }
};

// `weight`: float32 [outputs, inputs], rounded to bfloat16.
PackedWeight pack_weight(const float* weight, int num_outputs, int num_inputs, bool halves, const Kernels& kernels,
                         Pool& pool);

// `weight`: int8 [outputs, inputs]; `scales`: float32 [outputs].
PackedWeight pack_weight(const std::int8_t* weight, const float* scales, int num_outputs, int num_inputs, bool halves,
                         Pool& pool);

// Row `output` of a weight without halves, as float32.
void unpack_row(const PackedWeight& weight, int output, float* to);

}  // namespace treadle
