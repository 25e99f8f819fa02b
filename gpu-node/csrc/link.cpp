#include "link.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "memory.h"

namespace treadle {
namespace {

constexpr std::uint64_t kFormat = 0x334b4e4c44525400;  // a name, and the number of the layout

void require(bool condition, const std::string& text) {
  if (!condition) throw std::invalid_argument(text);
}

constexpr std::size_t lines(std::size_t num_bytes) { return (num_bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

constexpr std::size_t padded(std::size_t num_columns) {
  return (num_columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

// Where everything lies, by the bytes from the beginning on.
struct Layout {
  std::size_t q_stride, kv_stride, q_bytes, kv_bytes, block_bytes, slot_bytes, table, slots, end;

  explicit Layout(const LinkShape& shape)
      : q_stride(padded(std::size_t(shape.num_heads) * shape.head_dim)),
        kv_stride(padded(std::size_t(shape.num_kv_heads) * shape.head_dim)),
        q_bytes(lines(shape.max_rows * q_stride * sizeof(float))),
        kv_bytes(lines(shape.max_rows * kv_stride * sizeof(Bf16))),
        block_bytes(lines(shape.block_bytes())),
        slot_bytes(lines(sizeof(TaskHeader)) + 2 * q_bytes + 2 * kv_bytes + block_bytes),
        table(lines(sizeof(LinkHeader))),
        slots(table + lines(sizeof(TableHeader)) +
              lines((3 * std::size_t(shape.max_sequences) + shape.max_blocks) * sizeof(std::int32_t))),
        end(slots + shape.num_slots * slot_bytes + kSlackBytes) {}
};

const LinkShape& checked(const LinkShape& shape) {
  for (std::int32_t number : {shape.num_layers, shape.block_size, shape.num_heads, shape.num_kv_heads, shape.head_dim,
                              shape.num_slots, shape.max_rows, shape.max_sequences, shape.max_blocks})
    require(0 < number && number <= 1 << 20, "a link has sizes from 1 to 1,048,576");
  require((shape.num_slots & (shape.num_slots - 1)) == 0, "a link's slots are a power of two");
  require(shape.num_heads % shape.num_kv_heads == 0, "a link's heads share KV heads evenly");
  require(shape.num_heads / shape.num_kv_heads <= kMaxQueries, "too many heads of a link share a KV head");
  return shape;
}

void write_epoch(char* to, const std::string& epoch) {
  require(!epoch.empty() && epoch.size() < kMaxEpoch, "an epoch's name has from 1 to 95 characters");
  std::memcpy(to, epoch.c_str(), epoch.size() + 1);
}

bool is_epoch(const char* found, const std::string& epoch) {
  return strnlen(found, kMaxEpoch) == epoch.size() && epoch == std::string(found, epoch.size());
}

}  // namespace

std::size_t LinkMemory::bytes(const LinkShape& shape) { return Layout(checked(shape)).end; }

LinkMemory::LinkMemory(int file, const LinkShape& shape) : shape_(shape), num_bytes_(bytes(shape)) {
  struct stat status;
  require(fstat(file, &status) == 0, "a link's file cannot be looked at");
  require(static_cast<std::size_t>(status.st_size) == num_bytes_,
          "a link's file has " + std::to_string(status.st_size) + " bytes, and what was agreed on takes " +
              std::to_string(num_bytes_));
  void* data = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(data);
}

LinkMemory::LinkMemory(LinkMemory&& other) noexcept
    : shape_(other.shape_), num_bytes_(other.num_bytes_), data_(std::exchange(other.data_, nullptr)) {}

LinkMemory::~LinkMemory() {
  if (data_ != nullptr) munmap(data_, num_bytes_);
}

LinkMemory LinkMemory::make(int file, const LinkShape& shape, const std::string& sender, const std::string& receiver) {
  LinkMemory memory(file, shape);
  LinkHeader& header = *new (memory.data_) LinkHeader{};
  header.shape = shape;
  write_epoch(header.sender, sender);
  write_epoch(header.receiver, receiver);
  header.generation = kFirstGeneration;
  header.num_asked = header.num_served = kFirstTask;
  header.format.store(kFormat, std::memory_order_release);
  return memory;
}

LinkMemory LinkMemory::open(int file, const LinkShape& shape, const std::string& sender, const std::string& receiver) {
  LinkMemory memory(file, shape);
  const LinkHeader& header = memory.header();
  require(header.format.load(std::memory_order_acquire) == kFormat, "a link's file has another format");
  require(header.shape == shape, "a link has other sizes than were agreed on");
  require(is_epoch(header.sender, sender), "a link is of another sender");
  require(is_epoch(header.receiver, receiver), "a link is for another receiver");
  require(header.accepted.load() == kNoGeneration, "a link was open before");
  return memory;
}

LinkTable LinkMemory::table() const {
  std::byte* at = data_ + Layout(shape_).table;
  auto* numbers = reinterpret_cast<std::int32_t*>(at + lines(sizeof(TableHeader)));
  const std::ptrdiff_t n = shape_.max_sequences;
  return {reinterpret_cast<TableHeader*>(at), numbers, numbers + n, numbers + 2 * n, numbers + 3 * n};
}

LinkSlot LinkMemory::slot(std::uint32_t task) const {
  const Layout layout(shape_);
  std::byte* at = data_ + layout.slots + task % shape_.num_slots * layout.slot_bytes;
  std::byte* q = at + lines(sizeof(TaskHeader));
  std::byte *k = q + layout.q_bytes, *v = k + layout.kv_bytes, *out = v + layout.kv_bytes, *block = out + layout.q_bytes;
  return {reinterpret_cast<TaskHeader*>(at),
          reinterpret_cast<float*>(q),
          reinterpret_cast<Bf16*>(k),
          reinterpret_cast<Bf16*>(v),
          reinterpret_cast<float*>(out),
          block,
          static_cast<std::ptrdiff_t>(layout.q_stride),
          static_cast<std::ptrdiff_t>(layout.kv_stride)};
}

}  // namespace treadle
