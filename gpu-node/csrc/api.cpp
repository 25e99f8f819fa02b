// The library's C interface, for ctypes. What is not a pointer or a number stays on this side; an exception becomes
// null, 0 or -1 here and a text in `treadle_error`.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "api.h"
#include "blocks.h"
#include "device.h"
#include "program.h"
#include "token_mask.h"

using treadle::Arena;
using treadle::Device;
using treadle::guarded;
using treadle::Program;

namespace treadle {

thread_local std::string last_error;

}  // namespace treadle

TREADLE_API const char* treadle_error() { return treadle::last_error.c_str(); }

// The name of the level that `wanted` gives on this machine, or null.
TREADLE_API const char* treadle_level(const char* wanted) {
  const treadle::Kernels* kernels = treadle::find_kernels(wanted);
  return kernels == nullptr ? nullptr : kernels->name;
}

// 1; or 0 for a type that the device does not read.
TREADLE_API std::int32_t treadle_read_blocks(std::int32_t type, const std::uint8_t* blocks, std::int64_t num_blocks,
                                             float* to) {
  return treadle::read_blocks(type, blocks, num_blocks, to) ? 1 : 0;
}

TREADLE_API Device* treadle_device_new(std::int32_t num_threads, const std::int32_t* cpus, std::int32_t num_cpus) {
  return guarded<Device*>(nullptr, [&] { return new Device(num_threads, std::vector<int>(cpus, cpus + num_cpus)); });
}

TREADLE_API void treadle_device_free(Device* device) { delete device; }

TREADLE_API Arena* treadle_arena_new(std::int64_t num_pages, std::int64_t page_bytes) {
  return guarded<Arena*>(nullptr, [&] { return new Arena(num_pages, page_bytes); });
}

// No program may be left that lies in it.
TREADLE_API void treadle_arena_free(Arena* arena) { delete arena; }

TREADLE_API void* treadle_arena_data(const Arena* arena) { return arena->data(); }

TREADLE_API Program* treadle_program_new(const char* level, const treadle::Limits* limits,
                                         const treadle::CacheShape* cache, const Arena* arena, const Arena* host,
                                         std::int32_t rows_together) {
  return guarded<Program*>(nullptr, [&] {
    const treadle::Kernels* kernels = treadle::find_kernels(level);
    if (kernels == nullptr) throw std::invalid_argument("this machine lacks the level that was asked for");
    return new Program(*kernels, *limits, *cache, *arena, *host, rows_together);
  });
}

// None of the program's steps may be in the device's queue.
TREADLE_API void treadle_program_free(Program* program) { delete program; }

TREADLE_API std::int32_t treadle_add_buffer(Program* program, treadle::RowKind rows, treadle::Type type,
                                            std::int32_t num_columns) {
  return guarded(-1, [&] { return program->add_buffer(rows, type, num_columns); });
}

TREADLE_API std::int32_t treadle_add_weight(Program* program, const float* weight, std::int32_t num_outputs,
                                            std::int32_t num_inputs, std::int32_t halves) {
  return guarded(-1, [&] { return program->add_weight(weight, num_outputs, num_inputs, halves != 0); });
}

TREADLE_API std::int32_t treadle_add_int8_weight(Program* program, const std::int8_t* weight, const float* scales,
                                                 std::int32_t num_outputs, std::int32_t num_inputs,
                                                 std::int32_t halves) {
  return guarded(-1, [&] { return program->add_weight(weight, scales, num_outputs, num_inputs, halves != 0); });
}

TREADLE_API std::int32_t treadle_add_constant(Program* program, const float* values, std::int64_t num_values) {
  return guarded(-1, [&] { return program->add_constant(values, num_values); });
}

// Where a buffer lies, and the numbers from one of its rows to the next; null for a buffer that is not there.
TREADLE_API void* treadle_buffer_data(const Program* program, std::int32_t buffer, std::int64_t* stride) {
  return guarded<void*>(nullptr, [&] {
    const treadle::Columns all = program->columns(buffer, 0, 1);
    *stride = all.stride;
    return static_cast<void*>(all.data);
  });
}

// The share of a step that all operators work on which are added from now on; at first the whole. 0, or -1 and an error.
TREADLE_API std::int32_t treadle_work_on(Program* program, const treadle::PartRange* ranges, std::int32_t num_ranges) {
  return guarded(-1, [&] {
    program->work_on(treadle::Share(ranges, ranges + num_ranges));
    return 0;
  });
}

// --- steps ----------------------------------------------------------------------------------------------------------

// The step's event, or 0 and an error. What the outputs point to must live until the event has happened.
TREADLE_API std::uint64_t treadle_submit(Device* device, const Program* program, const treadle::StepInput* input) {
  return guarded<std::uint64_t>(0, [&] { return device->submit(*program, program->make_step(*input)); });
}

TREADLE_API void treadle_give_masks(std::uint32_t* given) { treadle::give_masks(*reinterpret_cast<treadle::Word*>(given)); }

TREADLE_API std::int32_t treadle_is_done(const Device* device, std::uint64_t event) { return device->is_done(event); }

TREADLE_API void treadle_wait(const Device* device, std::uint64_t event) { device->wait(event); }

// Writes `StepTimes`, four numbers, in seconds; 0 when they are not known.
TREADLE_API std::int32_t treadle_step_times(const Device* device, std::uint64_t event, double* times) {
  return guarded<std::int32_t>(0, [&] {
    const treadle::StepTimes known = device->times(event);
    times[0] = known.run_s;
    times[1] = known.idle_s;
    times[2] = known.served_s;
    times[3] = known.waited_s;
    return 1;
  });
}

TREADLE_API void treadle_drain(const Device* device) { device->drain(); }
