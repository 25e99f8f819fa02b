// Zeroed memory from the system: pages come when they are first touched, large ones where the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace treadle {

class Memory {
 public:
  Memory() = default;

  explicit Memory(std::size_t num_bytes) : num_bytes_(num_bytes + kSlackBytes) {
    void* data = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = data;
#ifdef MADV_HUGEPAGE
    if (num_bytes_ >= kHugeBytes) madvise(data_, num_bytes_, MADV_HUGEPAGE);  // a wish: weights are read end to end
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
    if (data_ != nullptr) munmap(data_, num_bytes_);
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  // a vector may be loaded from the last element on; what lies behind it is never used
  static constexpr std::size_t kSlackBytes = 256;
  static constexpr std::size_t kHugeBytes = std::size_t{4} << 20;

  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
  }

  void* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

}  // namespace treadle
