#include "buffer.h"

#include <stdexcept>
#include <vector>

namespace treadle {

PackedWeight pack_weight(const float* weight, int num_outputs, int num_inputs, bool halves, const Kernels& kernels,
                         Pool& pool) {
  if (num_inputs % kPair != 0) throw std::invalid_argument("a linear weight has an even number of inputs");
  constexpr int kHalf = kPanelColumns / 2;
  const int num_gates = num_outputs / 2;
  PackedWeight packed;
  packed.num_outputs = num_outputs;
  packed.num_inputs = num_inputs;
  packed.num_panels = halves ? (num_gates + kHalf - 1) / kHalf : (num_outputs + kPanelColumns - 1) / kPanelColumns;
  packed.data = reinterpret_cast<Bf16*>(pool.take(packed.num_panels * packed.panel_stride() * sizeof(Bf16)));
  // rounded in a place of its own, which a vector may overrun
  std::vector<Bf16> row(num_inputs + kPanelColumns);
  std::vector<float> wide(num_inputs + kPanelColumns);
  for (int output = 0; output < num_outputs; ++output) {
    std::memcpy(wide.data(), weight + std::ptrdiff_t{output} * num_inputs, num_inputs * sizeof(float));
    kernels.round(wide.data(), num_inputs, row.data());
    const int within = halves ? output % num_gates : output;
    const int width = halves ? kHalf : kPanelColumns;
    const int column = within % width + (halves && output >= num_gates ? kHalf : 0);
    Bf16* panel = packed.data + within / width * packed.panel_stride();
    for (int input = 0; input < num_inputs; input += kPair)
      std::memcpy(panel + input * kPanelColumns + kPair * column, row.data() + input, kPair * sizeof(Bf16));
  }
  return packed;
}

void unpack_row(const PackedWeight& weight, int output, float* to) {
  const Bf16* from = weight.panel(output / kPanelColumns) + kPair * (output % kPanelColumns);
  for (int input = 0; input < weight.num_inputs; input += kPair, from += kPair * kPanelColumns) {
    for (int i = 0; i < kPair; ++i) {
      const std::uint32_t bits = std::uint32_t{from[i]} << 16;
      std::memcpy(to + input + i, &bits, sizeof bits);
    }
  }
}

}  // namespace treadle
