// Zeroed memory from the system: pages come when they are first touched, large ones where the system has them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace treadle {

// A vector may be loaded from the last element on; what lies behind it is never used.
constexpr std::size_t kSlackBytes = 256;

class Memory {
 public:
  Memory() = default;

  explicit Memory(std::size_t num_bytes) : num_bytes_(num_bytes + kSlackBytes) {
    const bool is_large = num_bytes_ >= kHugeBytes;
    if (is_large) num_bytes_ += kHugeBytes;  // so that a large page can begin where the memory does
    void* data = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    mapped_ = data_ = static_cast<std::byte*>(data);
    if (!is_large) return;
    data_ += -reinterpret_cast<std::uintptr_t>(data) % kHugeBytes;
#ifdef MADV_HUGEPAGE
    madvise(mapped_, num_bytes_, MADV_HUGEPAGE);  // a wish
#endif
  }

  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (mapped_ != nullptr) munmap(mapped_, num_bytes_);
  }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr std::size_t kHugeBytes = std::size_t{2} << 20;

  void swap(Memory& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
  }

  std::byte* mapped_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

// Pieces that live as long as their pool, one behind the other. A piece alone would often be smaller than a large
// page, and a processor that reads weights end to end then stops at each small page to look up the next.
class Pool {
 public:
  std::byte* take(std::size_t num_bytes) {
    const std::size_t padded = (num_bytes + kSlackBytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    if (padded > left_) {
      left_ = std::max(padded, kChunkBytes);
      next_ = chunks_.emplace_back(left_).as<std::byte>();
    }
    left_ -= padded;
    return std::exchange(next_, next_ + padded);
  }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

  std::vector<Memory> chunks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace treadle
