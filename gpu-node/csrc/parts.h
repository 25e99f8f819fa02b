// Where a number of things is cut into parts.
#pragma once

#include <cstdint>
#include <utility>

namespace treadle {

// First and end of a part; parts have nearly the same size.
inline std::pair<int, int> part_of(int number, int part, int num_parts) {
  const auto cut = [&](int index) { return static_cast<int>(std::int64_t{number} * index / num_parts); };
  return {cut(part), cut(part + 1)};
}

}  // namespace treadle
