// Random numbers without a state: the function of (seed, choice, position) that gpu_node/executors/draws/counter.py explains.
#pragma once

#include <cstdint>

namespace treadle {

// Finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA'14).
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Uniform in [0, 1) with 53 bits.
constexpr double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
  std::uint64_t stream = mix(seed + kGolden);
  if (choice != 0) stream = mix(stream + choice * kGolden);
  return static_cast<double>(mix(stream + (position + 1) * kGolden) >> 11) * 0x1p-53;
}

}  // namespace treadle
