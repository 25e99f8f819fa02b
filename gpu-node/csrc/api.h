// What the files of the C interface share.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "program.h"

#define TREADLE_API extern "C" __attribute__((visibility("default")))

namespace treadle {

extern thread_local std::string last_error;  // of this thread's last call

template <typename Result, typename Body>
Result guarded(Result failed, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

// Some columns of a buffer.
struct View {
  std::int32_t buffer, first_column, num_columns;
};

inline Columns columns(const Program& program, const View& view) {
  return program.columns(view.buffer, view.first_column, view.num_columns);
}

}  // namespace treadle
