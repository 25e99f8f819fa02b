// The C interface of a program's lanes; see api.cpp.
#include <cstdint>

#include "api.h"
#include "device.h"

using treadle::guarded;
using treadle::Program;

// Where operators go that are added from now on: to a lane, with a part of the device. 0, or -1 and an error.
TREADLE_API std::int32_t treadle_queue_in(Program* program, std::int32_t lane, float device_part) {
  return guarded(-1, [&] {
    program->queue_in(lane, device_part);
    return 0;
  });
}

// Back to the list, where they go at first.
TREADLE_API void treadle_list(Program* program) { program->list(); }

// Of another lane, how many operators end before the next one begins that is added. 0, or -1 and an error.
TREADLE_API std::int32_t treadle_wait_for(Program* program, std::int32_t lane, std::int32_t num_ended) {
  return guarded(-1, [&] {
    program->wait_for(lane, num_ended);
    return 0;
  });
}

// In a lane: a layer of a step's copies to the host, of these from `first` / `count` to `end` / `count`. 0, or -1.
TREADLE_API std::int32_t treadle_copy_out(Program* program, std::int32_t layer, std::int32_t first, std::int32_t end,
                                          std::int32_t count) {
  return guarded(-1, [&] {
    program->count_copy_out();
    program->add_operator<treadle::CopyOut>(program->cache(), layer, first, end, count);
    return 0;
  });
}

// How many operators a lane has; -1 and an error.
TREADLE_API std::int32_t treadle_lane_size(const Program* program, std::int32_t lane) {
  return guarded(-1, [&] { return program->lane_size(lane); });
}

// When each operator of a lane began and ended in the last step: two numbers each, in seconds, of at most `most`. How
// many there are; -1 and an error while steps are under way.
TREADLE_API std::int32_t treadle_lane_times(const treadle::Device* device, std::int32_t lane, std::int32_t most,
                                            double* times) {
  return guarded(-1, [&] {
    std::int32_t number = 0;
    for (const auto& [begin, end] : device->lane_times(lane)) {
      if (number == most) break;
      times[2 * number] = begin;
      times[2 * number + 1] = end;
      ++number;
    }
    return number;
  });
}
