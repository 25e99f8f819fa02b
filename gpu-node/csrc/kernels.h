// What a processor level offers: one table of functions. Each level is the same source compiled for other instructions.
//
// Every number of an output is made by one fixed chain of operations that does not depend on how many rows a call has.
// So a row gives the same bits whatever else is in the batch, however work is cut into tasks, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bf16.h"

namespace treadle {

constexpr int kPanelColumns = 32;      // outputs that a linear kernel makes together
constexpr int kKeyColumns = 16;        // positions of a context whose scores are made together
constexpr int kContextTile = 64;       // positions between two updates of a running softmax
constexpr int kMaxQueries = 48;        // query vectors (rows times heads that share a KV head) of one attention task
constexpr int kMaxHeadDim = 512;
constexpr int kLineBytes = 64;         // of the processor's cache; blocks of keys and values begin with one

enum class Epilogue : std::int32_t {
  store,     // float32
  add,       // to the float32 that is there: the residual
  silu_mul,  // the first half of a panel gates the second; bfloat16
};

// An int8 weight as it is packed: its size in 7 bits, and its sign above them.
constexpr std::uint8_t kSignBit = 0x80;

// Where in a pair of inputs of an int8 panel the packed weight of an output lies: four outputs of the panel's first
// half, (even, odd) each, beside four of its second. To interleave two tables' answers within each 16 bytes, as wide
// registers do, then gives whole vectors of pairs in the outputs' order.
constexpr int kPlaceColumns = 4;
constexpr int int8_place(int column, int parity) {
  constexpr int kHalf = kPanelColumns / 2, kPieceBytes = 2 * kPlaceColumns;
  const int piece = column % kHalf / kPlaceColumns * 2 + column / kHalf;
  return piece * kPieceBytes + column % kPlaceColumns * 2 + parity;
}

// A panel of int8, [inputs / 2][32 outputs of 2 inputs at their `int8_place`], the number that each output is scaled
// by, and room for the panel as bfloat16.
struct Int8Panel {
  const std::uint8_t* data = nullptr;
  const float* scales = nullptr;
  Bf16* scratch = nullptr;
};

// Rows of x times one panel of a packed weight: bfloat16, [inputs / 2][kPanelColumns][2], or null where it is int8.
struct LinearTask {
  const Bf16* x;
  std::ptrdiff_t x_stride;
  const Bf16* panel;
  std::ptrdiff_t num_pairs;
  int num_rows;
  Epilogue epilogue;
  void* out;
  std::ptrdiff_t out_stride;
  Int8Panel int8 = {};
};

// A place for a row: float32 or bfloat16, whichever is not null.
struct RowOut {
  float* wide;
  Bf16* narrow;
};

// The KV cache of one layer for one head: what lies there if a block begins at line 0. Keys [head_dim / 2][block_size][2],
// so that scores are a product with a panel; values [block_size][head_dim].
struct HeadCache {
  const Bf16* data;
  std::ptrdiff_t value_offset;  // of the values behind the keys of a block
  int block_size;
  int head_dim;
};

// Consecutive rows of one sequence, the heads that share a KV head, over the sequence's whole context.
struct AttentionTask {
  const float* q;
  std::ptrdiff_t q_stride;
  int num_rows;
  int num_heads;
  int first_position;  // of the first row
  int end_position;    // behind what the last row sees
  bool sees_behind;    // each row sees positions behind its own, too, up to there
  int window;          // positions that a row sees, the last of them its own; with `sees_behind`, as many behind it, too
  float scale;
  HeadCache cache;
  const std::int32_t* block_lines;  // of the sequence's blocks
  RowOut out;
  std::ptrdiff_t out_stride;
  float* scratch;
};

constexpr int padded_head_dim(int head_dim) { return (head_dim + 31) / 32 * 32; }

// Floats of scratch that an attention task needs.
constexpr std::size_t attention_scratch_floats(int head_dim) {
  const std::size_t padded = padded_head_dim(head_dim);
  return kMaxQueries * (padded / 2 + kContextTile + kContextTile / 2 + padded + 2) + padded / 2 * kKeyColumns + 64;
}

constexpr int kChunkLogits = 128;  // logits that drawing a token looks at together

// Which weight a logit x has in a draw: e ** ((x - most) / temperature), 0 where x is below `least`.
struct Scale {
  double most;
  double temperature;
  double least;
};

struct Kernels {
  const char* name;
  void (*linear)(const LinearTask& task);
  void (*attention)(const AttentionTask& task);
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int num_columns, RowOut out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, int num_columns,
                     RowOut out);
  void (*relu)(const float* x, int num_columns, RowOut out);
  void (*gelu)(const float* x, int num_columns, RowOut out);
  void (*erf_gelu)(const float* x, int num_columns, RowOut out);
  void (*tanh)(const float* x, int num_columns, RowOut out);
  void (*silu_mul)(const float* gate, const float* up, int num_columns, RowOut out);
  void (*erf_gelu_mul)(const float* gate, const float* up, int num_columns, RowOut out);
  void (*add)(const float* a, const float* b, int num_columns, float* out);
  void (*rope)(float* x, const float* angles, int num_heads, int head_dim);
  void (*round)(const float* x, int num_columns, Bf16* out);
  // The first of the largest numbers, or -1 where one of them is not finite.
  int (*argmax)(const float* x, int num_columns);
  // The largest of each chunk of `kChunkLogits`; false where a number is not finite.
  bool (*find_maxima)(const float* logits, int num_logits, float* maxima);
  // The weight of each logit, and their sum. `scale.most` is the largest logit or more.
  double (*weigh)(const float* logits, int num_logits, const Scale& scale, double* weights);
};

// The table called `name` (plain, avx2, avx512, amx), or the best one for an empty name; null if this machine lacks it.
const Kernels* find_kernels(const char* name);

}  // namespace treadle
