// The C interface of links and of the operators that use them; see api.cpp.
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "api.h"
#include "device.h"
#include "link_receiver.h"
#include "link_sender.h"
#include "offload.h"
#include "program.h"

using treadle::columns;
using treadle::guarded;
using treadle::LinkMemory;
using treadle::LinkReceiver;
using treadle::LinkSender;
using treadle::LinkShape;
using treadle::Program;
using treadle::View;

// Bytes of the file of a link, or -1 and an error.
TREADLE_API std::int64_t treadle_link_bytes(const LinkShape* shape) {
  return guarded<std::int64_t>(-1, [&] { return static_cast<std::int64_t>(LinkMemory::bytes(*shape)); });
}

// The sender's end of a new link, in a file of zeros; null and an error. The file may be closed then.
TREADLE_API LinkSender* treadle_link_sender_new(std::int32_t file, const LinkShape* shape, const char* sender,
                                                const char* receiver, double deadline_s) {
  return guarded<LinkSender*>(nullptr, [&] {
    const auto deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(deadline_s));
    return new LinkSender(LinkMemory::make(file, *shape, sender, receiver), deadline);
  });
}

// No step that names it may be in a queue.
TREADLE_API void treadle_link_sender_free(LinkSender* link) { delete link; }

TREADLE_API std::uint32_t treadle_link_sender_generation(const LinkSender* link) { return link->generation(); }

TREADLE_API std::int32_t treadle_link_sender_is_open(const LinkSender* link) { return link->is_open(); }

// The receiver's end of a link that a sender made, served by `device` from now on; null and an error. Its blocks lie in
// pages of `arena`, none of which is lent yet.
TREADLE_API LinkReceiver* treadle_link_receiver_new(std::int32_t file, const LinkShape* shape, const char* sender,
                                                    const char* receiver, const char* level, treadle::Device* device,
                                                    const treadle::Arena* arena) {
  return guarded<LinkReceiver*>(nullptr, [&] {
    const treadle::Kernels* kernels = treadle::find_kernels(level);
    if (kernels == nullptr) throw std::invalid_argument("this machine lacks the level that was asked for");
    auto link =
        std::make_unique<LinkReceiver>(LinkMemory::open(file, *shape, sender, receiver), *kernels, *arena);
    device->attach(link.get());
    return link.release();
  });
}

// The device serves nothing for it any more when this returns.
TREADLE_API void treadle_link_receiver_free(LinkReceiver* link, treadle::Device* device) {
  device->detach(link);
  delete link;
}

// Whether tasks may name blocks in a page; 0, or -1 and an error. When this returns, no task uses a page taken back.
TREADLE_API std::int32_t treadle_link_receiver_lend(LinkReceiver* link, treadle::Device* device, std::int32_t page,
                                                    std::int32_t is_lent) {
  return guarded(-1, [&] {
    device->lend(*link, page, is_lent != 0);
    return 0;
  });
}

// Tasks that a device has done for others.
TREADLE_API std::uint64_t treadle_num_served(const treadle::Device* device) { return device->num_served(); }

// Of attention that a device has done for others: how often, and how long all of it took.
TREADLE_API std::uint64_t treadle_attended(const treadle::Device* device, double* seconds) {
  *seconds = static_cast<double>(device->receivers().attended_ns()) * 1e-9;
  return device->receivers().num_attended();
}

// Seconds: what a sender does while a task is away, and a step; then of all tasks, how long they were away, how long the
// sender waited, and how many there were.
TREADLE_API void treadle_link_sender_times(const LinkSender* link, double* times) {
  const treadle::SenderTimes& measured = link->times();
  times[0] = measured.local_ns() * 1e-9;
  times[1] = measured.step_ns() * 1e-9;
  times[2] = static_cast<double>(measured.away_ns()) * 1e-9;
  times[3] = static_cast<double>(measured.waited_ns()) * 1e-9;
  times[4] = static_cast<double>(measured.num_answers());
}

// The first two of these, as the sender says them.
TREADLE_API void treadle_link_receiver_times(const LinkReceiver* link, double* times) {
  times[0] = link->local_ns() * 1e-9;
  times[1] = link->step_ns() * 1e-9;
}

// Operators of a program's list, those that only the device knows included.
TREADLE_API std::int32_t treadle_num_operators(const Program* program) {
  return static_cast<std::int32_t>(program->operators().size());
}

// Of each: how long it has run in all, while the device had links; and whether it can be split. In so many steps.
TREADLE_API std::int64_t treadle_operator_times(const Program* program, double* seconds, std::int32_t* is_splittable) {
  const std::int64_t num_steps = program->operators().back()->num_took();
  for (const auto& one : program->operators()) {
    *seconds++ = static_cast<double>(one->took_ns()) * 1e-9;
    *is_splittable++ = one->is_splittable() && one->is_polled();
  }
  return num_steps;
}

// Into so many parts each; no step of the program may be in a queue. 0, or -1 and an error.
TREADLE_API std::int32_t treadle_split_operators(const Program* program, const std::int32_t* num_parts) {
  return guarded(-1, [&] {
    for (const auto& one : program->operators()) {
      if (*num_parts < 1 || (*num_parts > 1 && !one->is_splittable()))
        throw std::invalid_argument("an operator that cannot be split, or no part");
      one->split(*num_parts++);
    }
    return 0;
  });
}

// `window`: positions that a row sees, or 0 for all before it.
TREADLE_API std::int32_t treadle_send(Program* program, View q, View k, View v, std::int32_t layer, std::int32_t window) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Send>(program->kernels(), columns(*program, q), columns(*program, k),
                                         columns(*program, v), layer, window > 0 ? window : treadle::Sight::kNoWindow);
    program->count_send();
    return 0;
  });
}

// Of what was sent first and not gathered yet, of the same share.
TREADLE_API std::int32_t treadle_gather(Program* program, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Gather>(program->kernels(), columns(*program, out));
    program->count_gather();
    return 0;
  });
}
