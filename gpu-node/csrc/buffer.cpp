#include "buffer.h"

#include <stdexcept>
#include <vector>

namespace treadle {
namespace {

// Where an output lies.
struct Place {
  int panel, column;
};

Place place_of(const PackedWeight& weight, int output) {
  if (!weight.halves) return {output / kPanelColumns, output % kPanelColumns};
  constexpr int kHalf = kPanelColumns / 2;
  const int num_gates = weight.num_outputs / 2, within = output % num_gates;
  return {within / kHalf, within % kHalf + (output >= num_gates ? kHalf : 0)};
}

std::ptrdiff_t int8_offset(int input, int column) {
  return std::ptrdiff_t{input} / kPair * kPair * kPanelColumns + int8_place(column, input % kPair);
}

std::uint8_t int8_code(int value) {
  if (value < -127) throw std::invalid_argument("int8 weights are symmetric: from -127 to 127");
  return static_cast<std::uint8_t>(value < 0 ? kSignBit | -value : value);
}

int int8_value(std::uint8_t code) { return code & kSignBit ? -(code & ~kSignBit) : code; }

PackedWeight empty_weight(Type type, int num_outputs, int num_inputs, bool halves, Pool& pool) {
  if (num_inputs % kPair != 0) throw std::invalid_argument("a linear weight has an even number of inputs");
  const int width = halves ? kPanelColumns / 2 : kPanelColumns;
  const int num_columns = halves ? num_outputs / 2 : num_outputs;
  PackedWeight packed{type, nullptr, nullptr, num_outputs, num_inputs, (num_columns + width - 1) / width, halves};
  packed.data = pool.take(packed.num_panels * packed.panel_bytes());
  return packed;
}

}  // namespace

PackedWeight pack_weight(const float* weight, int num_outputs, int num_inputs, bool halves, const Kernels& kernels,
                         Pool& pool) {
  const PackedWeight packed = empty_weight(Type::bfloat16, num_outputs, num_inputs, halves, pool);
  // rounded in a place of its own, which a vector may overrun
  std::vector<Bf16> row(num_inputs + kPanelColumns);
  std::vector<float> wide(num_inputs + kPanelColumns);
  for (int output = 0; output < num_outputs; ++output) {
    std::memcpy(wide.data(), weight + std::ptrdiff_t{output} * num_inputs, num_inputs * sizeof(float));
    kernels.round(wide.data(), num_inputs, row.data());
    const Place place = place_of(packed, output);
    Bf16* to = packed.panel<Bf16>(place.panel) + kPair * place.column;
    for (int input = 0; input < num_inputs; input += kPair)
      std::memcpy(to + input * kPanelColumns, row.data() + input, kPair * sizeof(Bf16));
  }
  return packed;
}

PackedWeight pack_weight(const std::int8_t* weight, const float* scales, int num_outputs, int num_inputs, bool halves,
                         Pool& pool) {
  PackedWeight packed = empty_weight(Type::int8, num_outputs, num_inputs, halves, pool);
  packed.scales = reinterpret_cast<float*>(pool.take(packed.num_panels * kPanelColumns * sizeof(float)));
  for (int output = 0; output < num_outputs; ++output) {
    const Place place = place_of(packed, output);
    packed.scales[place.panel * kPanelColumns + place.column] = scales[output];
    auto* to = packed.panel<std::uint8_t>(place.panel);
    for (int input = 0; input < num_inputs; ++input) to[int8_offset(input, place.column)] = int8_code(*weight++);
  }
  return packed;
}

void unpack_row(const PackedWeight& weight, int output, float* to) {
  const Place place = place_of(weight, output);
  if (weight.type == Type::int8) {
    const auto* from = weight.panel<std::uint8_t>(place.panel);
    const float scale = weight.scales[place.panel * kPanelColumns + place.column];
    for (int input = 0; input < weight.num_inputs; ++input)
      to[input] = int8_value(from[int8_offset(input, place.column)]) * scale;
    return;
  }
  const Bf16* from = weight.panel<Bf16>(place.panel) + kPair * place.column;
  for (int input = 0; input < weight.num_inputs; input += kPair, from += kPair * kPanelColumns) {
    for (int i = 0; i < kPair; ++i) {
      const std::uint32_t bits = std::uint32_t{from[i]} << 16;
      std::memcpy(to + input + i, &bits, sizeof bits);
    }
  }
}

}  // namespace treadle
