#include "receivers.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace treadle {

// A device that serves holds the links from its look to the end of the last task, in whichever threads: no mutex can be
// held so.
class Receivers::Hold {
 public:
  explicit Hold(Receivers& receivers) : receivers_(receivers) {
    while (receivers_.is_held_.exchange(true, std::memory_order_acquire))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { receivers_.is_held_.store(false, std::memory_order_release); }

 private:
  Receivers& receivers_;
};

void Receivers::attach(LinkReceiver* receiver) {
  const Hold hold(*this);
  LinkReceiver** place = std::find(links_.begin(), links_.end(), nullptr);
  if (place == links_.end()) throw std::invalid_argument("a device serves at most 16 links");
  *place = receiver;
  ++num_links_;
}

void Receivers::detach(LinkReceiver* receiver) {
  const Hold hold(*this);
  LinkReceiver** place = std::find(links_.begin(), links_.end(), receiver);
  if (place == links_.end()) return;
  receiver->refuse();
  *place = nullptr;
  --num_links_;
}

void Receivers::lend(LinkReceiver& receiver, std::int32_t page, bool is_lent) {
  const Hold hold(*this);
  receiver.lend(page, is_lent);
}

bool Receivers::look() {
  if (is_empty() || is_held_.exchange(true, std::memory_order_acquire)) return false;
  begin_ = (current_place_ + 1) % kMaxLinks;
  return find(0);
}

bool Receivers::finish() {
  num_served_.fetch_add(1, std::memory_order_relaxed);  // a thread that sees the answer sees it counted
  if (current_->attends()) {
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - task_since_;
    num_attended_.fetch_add(1, std::memory_order_relaxed);
    attended_ns_.fetch_add(took.count(), std::memory_order_relaxed);
  }
  current_->finish();
  return find((current_place_ - begin_ + kMaxLinks) % kMaxLinks + 1);
}

// From the place that is `first` behind the beginning on.
bool Receivers::find(int first) {
  for (int i = first; i < kMaxLinks; ++i) {
    const int place = (begin_ + i) % kMaxLinks;
    LinkReceiver* link = links_[place];
    if (link == nullptr || !link->look()) continue;
    current_ = link;
    current_place_ = place;
    task_since_ = std::chrono::steady_clock::now();
    return true;
  }
  is_held_.store(false, std::memory_order_release);
  return false;
}

void Receivers::sleep(const Word& bell, std::uint32_t seen, std::chrono::nanoseconds at_most) {
  std::array<Watched, kMaxLinks + 1> watched{Watched{&bell, seen}};
  int num_watched = 1;
  bool has_news = false;
  const auto say = [&](bool sleeps) {
    const Hold hold(*this);
    for (LinkReceiver* link : links_) {
      if (link == nullptr) continue;
      if (sleeps) watched[num_watched++] = {&link->bell(), link->bell().load(std::memory_order_seq_cst)};
      link->says_it_sleeps(sleeps);
      has_news = has_news || link->has_news();
    }
  };
  say(true);
  if (!has_news) sleep_on({watched.data(), static_cast<std::size_t>(num_watched)}, at_most);
  say(false);
}

}  // namespace treadle
