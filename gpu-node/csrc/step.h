// What changes from step to step: the rows of a batch, where their keys and values lie, and which of them draw a token.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace treadle {

struct CacheShape {
  std::int32_t num_layers;
  std::int32_t num_blocks;
  std::int32_t block_size;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
};

struct Limits {
  std::int32_t max_rows;
  std::int32_t max_draws;
  std::int32_t max_positions;   // length of a sequence
  std::int32_t vocabulary;
};

// As the caller gives it; the arrays are copied. Sequence after sequence: `num_rows[i]` tokens that follow `starts[i]`
// tokens, the blocks of all of them in the next `num_blocks[i]` numbers of `block_tables`.
struct StepInput {
  std::int32_t num_sequences;
  const std::int32_t* starts;
  const std::int32_t* num_rows;
  const std::int32_t* num_blocks;
  const std::int32_t* block_tables;
  const std::int32_t* token_ids;
  std::int32_t num_draws;
  const std::int32_t* draw_rows;
  std::int32_t num_copies;
  const std::int32_t* copies;  // source and destination, in turn
  std::int32_t* tokens;        // out, one for each draw: the most likely, or -1 where logits are not finite
  float* logits;               // out, [draws][vocabulary], or null; both are written before the step is done
};

// Rows of one sequence that attention takes together.
struct RowGroup {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t first_position;
  std::int32_t table;  // where the sequence's block table begins
};

struct Copy {
  std::int32_t source;
  std::int32_t destination;
};

// Part `index` of `count` of a batch; see `Step::rows_of`.
struct Share {
  std::int32_t index = 0;
  std::int32_t count = 1;
};

struct Step {
  // Throws std::invalid_argument where a number is outside of what the program was made for.
  Step(const StepInput& input, const Limits& limits, const CacheShape& cache, int rows_together);

  std::vector<std::int32_t> token_ids;   // [rows]
  std::vector<std::int32_t> positions;   // [rows]
  std::vector<std::int32_t> row_blocks;  // [rows]: the block that takes the row's key and value
  std::vector<std::int32_t> draw_rows;   // [draws]
  std::vector<std::int32_t> block_tables;
  std::vector<RowGroup> groups;
  std::vector<std::int32_t> sequence_rows;  // the first row of each sequence, and behind the last one its end
  std::vector<Copy> copies;
  std::int32_t* tokens;
  float* logits;

  // First row and end of a share. A batch is cut between sequences, so that no part attends to what another writes: cut
  // i of n is the first sequence with at least i / n of all rows before it.
  std::pair<int, int> rows_of(Share share) const;

  int num_rows() const { return static_cast<int>(token_ids.size()); }
  int num_draws() const { return static_cast<int>(draw_rows.size()); }
};

}  // namespace treadle
