#include "offload.h"

#include <algorithm>
#include <cstring>

#include "link_sender.h"

namespace treadle {
namespace {

constexpr int kRowsTogether = 4;

int num_row_tasks(const Step& step) {
  return (step.num_rows() - step.first_remote_row() + kRowsTogether - 1) / kRowsTogether;
}

// Calls `body` with each remote row of a task, and its range.
template <typename Body>
void for_rows(int task, const Step& step, const Body& body) {
  const int first = step.first_remote_row() + task * kRowsTogether;
  const int end = std::min(first + kRowsTogether, step.num_rows());
  auto range = step.remotes.begin();
  for (int row = first; row < end; ++row) {
    while (row >= range->end_row) ++range;
    body(row, *range);
  }
}

bool is_lost(const RemoteRange& range) { return *range.lost != 0; }

// Whether nobody has to wait any longer; who is lost now is marked.
template <typename Ask>
bool all_come(const Step& step, const Ask& ask) {
  bool all = true;
  for (const RemoteRange& range : step.remotes) {
    if (is_lost(range)) continue;
    const Turn turn = ask(range);
    if (turn == Turn::lost) *range.lost = 1;
    if (turn == Turn::waits) all = false;
  }
  return all;
}

void sleep_at_first(const Step& step, std::chrono::nanoseconds at_most) {
  const auto waits = std::find_if(step.remotes.begin(), step.remotes.end(), [](const RemoteRange& range) {
    return !is_lost(range) && !range.link->has_answer();
  });
  if (waits != step.remotes.end()) waits->link->sleep(at_most);
}

}  // namespace

int Send::num_tasks(const Step& step) const { return num_row_tasks(step); }

void Send::run(int task, const Step& step, Scratch&) const {
  for_rows(task, step, [&](int row, const RemoteRange& range) {
    if (is_lost(range)) return;
    const LinkSlot slot = range.link->slot();
    const std::ptrdiff_t to = row - range.first_row;
    std::memcpy(slot.q + to * slot.q_stride, q_.wide(row), q_.num_columns * sizeof(float));
    kernels_.round(k_.wide(row), k_.num_columns, slot.k + to * slot.kv_stride);
    kernels_.round(v_.wide(row), v_.num_columns, slot.v + to * slot.kv_stride);
  });
}

bool Send::is_ready(const Step& step) const {
  return all_come(step, [&](const RemoteRange& range) { return range.link->room(range, step.number); });
}

void Send::sleep(const Step& step, std::chrono::nanoseconds at_most) const { sleep_at_first(step, at_most); }

void Send::finish(const Step& step) const {
  for (const RemoteRange& range : step.remotes) {
    if (is_lost(range)) continue;
    range.link->ask(range, step.number, {layer_, window_, answer_ == Type::bfloat16, 0});
  }
}

int Gather::num_tasks(const Step& step) const { return num_row_tasks(step); }

void Gather::run(int task, const Step& step, Scratch&) const {
  const bool narrow = out_.type == Type::bfloat16;
  const std::size_t row_bytes = out_.num_columns * (narrow ? sizeof(Bf16) : sizeof(float));
  for_rows(task, step, [&](int row, const RemoteRange& range) {
    std::byte* to = narrow ? reinterpret_cast<std::byte*>(out_.narrow(row)) : reinterpret_cast<std::byte*>(out_.wide(row));
    if (is_lost(range)) {
      std::memset(to, 0, row_bytes);
      return;
    }
    const RowOut from = range.link->answer().out_row(row - range.first_row, narrow);
    std::memcpy(to, narrow ? static_cast<const void*>(from.narrow) : from.wide, row_bytes);
  });
}

bool Gather::is_ready(const Step& step) const {
  return all_come(step, [](const RemoteRange& range) { return range.link->answered(); });
}

void Gather::sleep(const Step& step, std::chrono::nanoseconds at_most) const { sleep_at_first(step, at_most); }

void Gather::finish(const Step& step) const {
  for (const RemoteRange& range : step.remotes)
    if (!is_lost(range)) range.link->settle();
}

}  // namespace treadle
