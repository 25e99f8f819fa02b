#include "lanes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "futex.h"

namespace treadle {

void LaneRun::begin(const LaneQueues& queues, const Step& step) {
  queues_ = &queues;
  step_ = &step;
  int num_open = 0;
  for (int i = 0; i < kNumLanes; ++i) {
    const std::vector<LaneTurn>& queue = queues[i];
    Lane& lane = lanes_[i];
    if (lane.room < queue.size()) {
      lane.turns = std::make_unique<Turn[]>(queue.size());
      lane.room = queue.size();
    }
    for (std::size_t place = 0; place < queue.size(); ++place) {
      Turn& turn = lane.turns[place];
      turn.num_tasks = std::max(queue[place].one->num_tasks(step), 1);
      const float num_threads = queue[place].device_part * static_cast<float>(num_threads_);
      turn.num_wanted = std::max(1, static_cast<int>(std::lround(num_threads)));
      turn.next_task.store(0, std::memory_order_relaxed);
      turn.num_done.store(0, std::memory_order_relaxed);
      turn.may_begin.store(!queue[place].one->waits(step), std::memory_order_relaxed);
    }
    lane.place.store(0, std::memory_order_relaxed);
    lane.num_workers.store(0, std::memory_order_relaxed);
    num_open += queue.empty() ? 0 : 1;
  }
  num_open_.store(num_open, std::memory_order_relaxed);
  begin_ = Clock::now();
}

std::vector<std::pair<double, double>> LaneRun::times(int lane) const {
  std::vector<std::pair<double, double>> found;
  const auto since = [&](Clock::time_point time) { return std::chrono::duration<double>(time - begin_).count(); };
  const int num_turns = lanes_.at(lane).place.load(std::memory_order_acquire);
  for (int place = 0; place < num_turns; ++place)
    found.emplace_back(since(lanes_[lane].turns[place].begin), since(lanes_[lane].turns[place].end));
  return found;
}

void LaneRun::work(Scratch& scratch) {
  for (;;) {
    const std::uint32_t seen = moved_.value();
    if (num_open_.load(std::memory_order_acquire) == 0) return;
    const int lane = neediest();
    if (lane == kNoLane) {
      wait(seen, scratch);
    } else {
      work_in(lane, scratch);
    }
  }
}

std::chrono::nanoseconds LaneRun::take_served() { return std::exchange(served_, {}) / num_threads_; }
std::chrono::nanoseconds LaneRun::take_waited() { return std::exchange(waited_, {}) / num_threads_; }

// The lane that misses most threads, of those with a task that may run.
int LaneRun::neediest() {
  int found = kNoLane, most_missing = 0;
  for (int i = 0; i < kNumLanes; ++i) {
    const int place = lanes_[i].place.load(std::memory_order_acquire);
    if (place == static_cast<int>((*queues_)[i].size())) continue;
    const Turn& turn = lanes_[i].turns[place];
    if (turn.next_task.load(std::memory_order_relaxed) >= turn.num_tasks || !is_ready(i, place)) continue;
    if (!may_begin(i, place)) continue;
    const int missing = turn.num_wanted - lanes_[i].num_workers.load(std::memory_order_relaxed);
    if (found == kNoLane || missing > most_missing) {
      found = i;
      most_missing = missing;
    }
  }
  return found;
}

bool LaneRun::is_ready(int lane, int place) const {
  const std::vector<LaneWait>& waits = (*queues_)[lane][place].waits;
  return std::all_of(waits.begin(), waits.end(), [&](const LaneWait& wait) {
    return lanes_[wait.lane].place.load(std::memory_order_acquire) >= wait.num_ended;
  });
}

// As far as other devices go; asked by one thread at a time, others take it for a no.
bool LaneRun::may_begin(int lane, int place) {
  Turn& turn = lanes_[lane].turns[place];
  if (turn.may_begin.load(std::memory_order_acquire)) return true;
  if (is_asking_.exchange(true, std::memory_order_acquire)) return false;
  const Operator& next = *(*queues_)[lane][place].one;
  const bool was_asked = turn.may_begin.load(std::memory_order_relaxed);
  const bool may_begin = was_asked || (next.is_worth_asking(*step_) && next.is_ready(*step_));
  if (may_begin && !was_asked) {
    turn.may_begin.store(true, std::memory_order_release);
    moved_.raise();
  }
  is_asking_.store(false, std::memory_order_release);
  return may_begin;
}

// The next operator of a lane that waits for another device and for nothing else; null where there is none.
LaneRun::Turn* LaneRun::waiting(const Operator*& next) {
  for (int i = 0; i < kNumLanes; ++i) {
    const int place = lanes_[i].place.load(std::memory_order_acquire);
    if (place == static_cast<int>((*queues_)[i].size())) continue;
    Turn& turn = lanes_[i].turns[place];
    next = (*queues_)[i][place].one.get();
    if (!turn.may_begin.load(std::memory_order_acquire) && is_ready(i, place)) return &turn;
  }
  return nullptr;
}

// Nothing is to be done, as it was when `moved_` was `seen`. One thread looks what other devices do; it returns when
// something has moved, or when it serves, for then another thread has to look.
void LaneRun::wait(std::uint32_t seen, Scratch& scratch) {
  const Operator* next = nullptr;
  Turn* turn = waiting(next);
  if (turn == nullptr || is_asking_.exchange(true, std::memory_order_acquire)) {
    moved_.wait_beyond(seen);
    return;
  }
  const auto begin = Clock::now();
  bool serves = false;
  // only the thread that asks says that it may begin: as long as it may not, its lane stands still
  while (!turn->may_begin.load(std::memory_order_relaxed) && moved_.value() == seen && !serves) {
    if (next->is_ready(*step_)) {
      turn->may_begin.store(true, std::memory_order_release);
    } else if (receivers_.look()) {
      serves = true;
    } else if (Clock::now() - begin < kAwakeWaiting) {
      pause();
    } else {
      next->sleep(*step_, kAsleepWaiting);
    }
  }
  waited_ += Clock::now() - begin;
  is_asking_.store(false, std::memory_order_release);
  moved_.raise();
  if (serves) serve(scratch);
}

// Tasks of the lane's operator, while it has no more threads than it wants.
void LaneRun::work_in(int lane, Scratch& scratch) {
  Lane& own = lanes_[lane];
  const int place = own.place.load(std::memory_order_acquire);
  if (place == static_cast<int>((*queues_)[lane].size()) || !is_ready(lane, place)) return;  // it has moved meanwhile
  if (!own.turns[place].may_begin.load(std::memory_order_acquire)) return;
  const Operator& current = *(*queues_)[lane][place].one;
  Turn& turn = own.turns[place];
  const bool has_tasks = current.num_tasks(*step_) > 0;
  own.num_workers.fetch_add(1, std::memory_order_relaxed);
  bool is_last = false;
  do {
    const int task = turn.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= turn.num_tasks) break;
    if (task == 0) turn.begin = Clock::now();
    if (has_tasks) current.run(task, *step_, scratch);
    is_last = turn.num_done.fetch_add(1, std::memory_order_acq_rel) + 1 == turn.num_tasks;
  } while (!is_last && own.num_workers.load(std::memory_order_relaxed) <= turn.num_wanted);
  own.num_workers.fetch_sub(1, std::memory_order_relaxed);
  if (is_last) end(lane, place, scratch);
}

// All tasks of an operator are done; no other thread ends it.
void LaneRun::end(int lane, int place, Scratch& scratch) {
  const Operator& ended = *(*queues_)[lane][place].one;
  ended.finish(*step_);
  lanes_[lane].turns[place].end = Clock::now();
  if (ended.is_polled() && receivers_.look()) serve(scratch);
  lanes_[lane].place.store(place + 1, std::memory_order_release);
  if (place + 1 == static_cast<int>((*queues_)[lane].size())) num_open_.fetch_sub(1, std::memory_order_acq_rel);
  moved_.raise();
}

// This thread alone, while others go on in their lanes.
void LaneRun::serve(Scratch& scratch) {
  for (bool waits = true; waits;) {
    const auto begin = Clock::now();
    for (int phase = 0; phase < LinkReceiver::kNumPhases; ++phase) {
      const int num_tasks = receivers_.num_tasks(phase);
      for (int task = 0; task < num_tasks; ++task) receivers_.run(phase, task, scratch);
    }
    served_ += Clock::now() - begin;
    waits = receivers_.finish();
  }
}

}  // namespace treadle
