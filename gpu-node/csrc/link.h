// A link: memory that two engines of one host share, through which one has the other compute attention for it
// (Weaver, ATC'25, §4.1). The sender writes rows and tables, then moves the task counter; the receiver writes the
// answer, then moves the completion counter. Neither writes what the other writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bf16.h"
#include "futex.h"
#include "kernels.h"
#include "step.h"

namespace treadle {

// What both sides agree on before there is a link. The cache is the sender's: the receiver cuts its own memory so.
struct LinkShape {
  std::int32_t num_layers;
  std::int32_t block_size;
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  std::int32_t num_slots;      // tasks that may be under way; a power of two
  std::int32_t max_rows;       // of a task
  std::int32_t max_sequences;  // of a step
  std::int32_t max_blocks;     // of all of them

  bool operator==(const LinkShape&) const = default;
  CacheShape cache(std::int32_t num_blocks) const { return {num_layers, num_blocks, block_size, num_kv_heads, head_dim}; }
  // Of a block: keys and values of a layer.
  std::size_t layer_bytes() const { return 2 * sizeof(Bf16) * num_kv_heads * head_dim * std::size_t(block_size); }
  std::size_t block_bytes() const { return num_layers * layer_bytes(); }
};

// Counters wrap, so only differences mean anything. They begin where they soon do.
constexpr std::uint32_t kFirstTask = 0xfffffff0;
constexpr std::uint32_t kFirstGeneration = 1;
constexpr std::uint32_t kNoGeneration = 0;
constexpr std::size_t kMaxEpoch = 96;

struct LinkHeader {
  std::atomic<std::uint64_t> format;  // written when all else is
  LinkShape shape;
  char sender[kMaxEpoch], receiver[kMaxEpoch];  // epochs, ended by a 0
  // the sender's
  alignas(kLineBytes) Word generation;  // of the link: another one whenever the sender gave up what was under way
  Word num_asked;
  Word rings;  // moves with each of the two; the receiver sleeps on it
  Word sender_sleeps;
  Word local_ns;  // hints, 0 while unknown: what the sender does itself while a task is away, and how long its steps
  Word step_ns;   // take, on average
  // the receiver's
  alignas(kLineBytes) Word accepted;  // the generation that it serves
  Word num_served;                    // the sender sleeps on it
  Word refused;                       // a generation in which it serves nothing (any more)
  Word receiver_sleeps;
};

enum class TaskKind : std::int32_t {
  attend,     // to blocks that the receiver has, behind keys and values that it writes first
  put,        // the slot's block into one of the receiver's
  call_back,  // one of the receiver's blocks into the slot's
};

struct TaskHeader {
  std::int32_t layer;
  std::int32_t window;              // positions that a row sees, the last of them its own
  std::int32_t first_row, end_row;  // of the table's rows; whole sequences
  std::uint32_t table;              // the version of the table that it was asked with
  TaskKind kind;                    // of another kind than attend, the next is all that it has
  std::int32_t block;               // the receiver's
};

struct TableHeader {
  std::uint32_t version;
  std::int32_t num_sequences;
  std::int32_t num_blocks;
};

// Sequences of a step, as `StepInput` has them; written once a step. Blocks are the receiver's.
struct LinkTable {
  TableHeader* header;
  std::int32_t *starts, *num_rows, *num_blocks;  // [max_sequences]
  std::int32_t* blocks;                          // [max_blocks]
};

struct LinkSlot {
  TaskHeader* header;
  float* q;     // [max_rows][q_stride]; rows are those of the table
  Bf16 *k, *v;  // [max_rows][kv_stride]
  float* out;   // [max_rows][q_stride]
  std::byte* block;  // whole, as both sides hold it
  std::ptrdiff_t q_stride, kv_stride;
};

// The mapped memory of a link. Throws std::invalid_argument with what is wrong with it.
class LinkMemory {
 public:
  // A new link, in a file of `bytes(shape)` zeros.
  static LinkMemory make(int file, const LinkShape& shape, const std::string& sender, const std::string& receiver);
  // A link that the sender made; it is refused unless it is exactly what was agreed on.
  static LinkMemory open(int file, const LinkShape& shape, const std::string& sender, const std::string& receiver);
  static std::size_t bytes(const LinkShape& shape);

  LinkMemory(LinkMemory&& other) noexcept;
  LinkMemory& operator=(LinkMemory&&) = delete;
  ~LinkMemory();

  const LinkShape& shape() const { return shape_; }
  LinkHeader& header() const { return *reinterpret_cast<LinkHeader*>(data_); }
  LinkTable table() const;
  LinkSlot slot(std::uint32_t task) const;

 private:
  LinkMemory(int file, const LinkShape& shape);

  LinkShape shape_;
  std::size_t num_bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace treadle
