// Memory for the KV blocks of several models: equal pages, each cut into blocks of the model that leases it.
//
// A place in it is counted in lines of the processor's cache, so that 32 bits are enough and kernels need no division.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels.h"
#include "memory.h"

namespace treadle {

class Arena {
 public:
  Arena(std::int64_t num_pages, std::int64_t page_bytes)
      : num_pages_(num_pages), page_lines_(page_bytes / kLineBytes) {
    if (num_pages < 1 || page_bytes < 0) throw std::invalid_argument("an arena has pages");
    if (num_pages * page_lines_ > INT32_MAX) throw std::invalid_argument("an arena has fewer than 128 GiB");
    memory_ = Memory(static_cast<std::size_t>(num_pages * page_lines_ * kLineBytes));
  }

  std::int64_t num_pages() const { return num_pages_; }
  std::int64_t page_lines() const { return page_lines_; }
  std::byte* data() const { return memory_.as<std::byte>(); }
  std::byte* line(std::int32_t index) const { return data() + std::ptrdiff_t{index} * kLineBytes; }

 private:
  std::int64_t num_pages_, page_lines_;
  Memory memory_;
};

// Where the blocks of one model lie in an arena: block `page * blocks_per_page + slot` in that slot of that page.
class BlockPlaces {
 public:
  BlockPlaces(const Arena& arena, std::int64_t block_bytes)
      : block_lines_((block_bytes + kLineBytes - 1) / kLineBytes),  // at least one
        blocks_per_page_(arena.page_lines() / block_lines_),
        page_lines_(arena.page_lines()),
        num_blocks_(arena.num_pages() * blocks_per_page_) {}  // none, where a page is smaller than a block

  // The page of a block that is there.
  std::int64_t page(std::int32_t block) const { return block / blocks_per_page_; }
  bool has(std::int32_t block) const { return 0 <= block && block < num_blocks_; }
  std::int32_t line(std::int32_t block) const {
    return static_cast<std::int32_t>(block / blocks_per_page_ * page_lines_ + block % blocks_per_page_ * block_lines_);
  }

 private:
  std::int64_t block_lines_, blocks_per_page_, page_lines_, num_blocks_;
};

}  // namespace treadle
