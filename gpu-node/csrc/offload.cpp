#include "offload.h"

#include <algorithm>
#include <cstring>

namespace treadle {
namespace {

constexpr int kRowsSentTogether = 4;

bool is_lost(const RemoteRange& range) { return *range.lost != 0; }

}  // namespace

std::pair<int, int> OffloadOperator::rows(const Step& step) const {
  const auto [first, end] = step.rows(RowKind::tokens, share());
  return {std::max(first, step.first_remote_row()), end};
}

template <typename Body>
void OffloadOperator::for_ranges(const Step& step, const Body& body) const {
  const auto [first, end] = rows(step);
  for (const RemoteRange& range : step.remotes) {
    const int first_row = std::max(first, range.first_row), end_row = std::min(end, range.end_row);
    if (first_row < end_row && !is_lost(range)) body(range, first_row, end_row);
  }
}

int OffloadOperator::num_tasks(const Step& step) const {
  const auto [first, end] = rows(step);
  return std::max(0, end - first + kRowsSentTogether - 1) / kRowsSentTogether;
}

void OffloadOperator::run(int task, const Step& step, Scratch&) const {
  const auto [first, end] = rows(step);
  auto range = step.remotes.begin();
  const int begin = first + task * kRowsSentTogether;
  for (int row = begin; row < std::min(begin + kRowsSentTogether, end); ++row) {
    while (row >= range->end_row) ++range;
    move_row(row, row - range->first_row, *range);
  }
}

// Whether no range has to wait any longer; ranges that are lost now are marked.
bool OffloadOperator::is_ready(const Step& step) const {
  bool is_ready = true;
  for_ranges(step, [&](const RemoteRange& range, int, int) {
    const Turn turn = this->turn(step, range);
    if (turn == Turn::lost) *range.lost = 1;
    if (turn == Turn::waits) is_ready = false;
  });
  return is_ready;
}

void OffloadOperator::sleep(const Step& step, std::chrono::nanoseconds at_most) const {
  const LinkSender* waits = nullptr;
  for_ranges(step, [&](const RemoteRange& range, int, int) {
    if (!range.link->has_answer()) waits = range.link;
  });
  if (waits != nullptr) waits->sleep(at_most);
}

bool OffloadOperator::is_worth_asking(const Step& step) const {
  bool is_worth = true;
  for_ranges(step, [&](const RemoteRange& range, int, int) { is_worth = is_worth && has_come(range); });
  return is_worth;
}

void OffloadOperator::finish(const Step& step) const {
  for_ranges(step, [&](const RemoteRange& range, int first_row, int end_row) {
    end(step, range, first_row - range.first_row, end_row - range.first_row);
  });
}

Turn Send::turn(const Step& step, const RemoteRange& range) const { return range.link->room(range, step.number); }

void Send::move_row(int row, int place, const RemoteRange& range) const {
  if (is_lost(range)) return;
  const LinkSlot slot = range.link->slot();
  std::memcpy(slot.q + place * slot.q_stride, q_.wide(row), q_.num_columns * sizeof(float));
  kernels_.round(k_.wide(row), k_.num_columns, slot.k + place * slot.kv_stride);
  kernels_.round(v_.wide(row), v_.num_columns, slot.v + place * slot.kv_stride);
}

void Send::end(const Step& step, const RemoteRange& range, int first, int end) const {
  range.link->ask(range, step.number, {layer_, window_, first, end, 0});
}

bool MoveRemoteBlocks::waits(const Step& step) const {
  return std::any_of(step.remotes.begin(), step.remotes.end(),
                     [](const RemoteRange& range) { return !range.moves.empty(); });
}

bool MoveRemoteBlocks::is_ready(const Step& step) const {
  bool is_ready = true;
  for (const RemoteRange& range : step.remotes) {
    if (range.moves.empty() || is_lost(range)) continue;
    const Turn turn = range.link->move(range, step.number, arena_);
    if (turn == Turn::lost) *range.lost = 1;
    if (turn == Turn::waits) is_ready = false;
  }
  return is_ready;
}

void MoveRemoteBlocks::sleep(const Step& step, std::chrono::nanoseconds at_most) const {
  const auto waits = std::find_if(step.remotes.begin(), step.remotes.end(), [](const RemoteRange& range) {
    return !range.moves.empty() && !is_lost(range) && !range.link->has_answer();
  });
  if (waits != step.remotes.end()) waits->link->sleep(at_most);
}

Turn Gather::turn(const Step&, const RemoteRange& range) const { return range.link->answered(); }

void Gather::move_row(int row, int place, const RemoteRange& range) const {
  const bool is_narrow = out_.type == Type::bfloat16;
  const LinkSlot slot = range.link->answer();
  const float* answer = slot.out + place * slot.q_stride;
  if (is_narrow && is_lost(range)) {
    std::memset(out_.narrow(row), 0, out_.num_columns * sizeof(Bf16));
  } else if (is_narrow) {
    kernels_.round(answer, out_.num_columns, out_.narrow(row));
  } else if (is_lost(range)) {
    std::memset(out_.wide(row), 0, out_.num_columns * sizeof(float));
  } else {
    std::memcpy(out_.wide(row), answer, out_.num_columns * sizeof(float));
  }
}

void Gather::end(const Step&, const RemoteRange& range, int, int) const { range.link->settle(); }

}  // namespace treadle
