// What changes from step to step: the rows of a batch, where their keys and values lie, and what is drawn from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "arena.h"
#include "draw_input.h"
#include "futex.h"

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
  std::int32_t max_draws;       // rows that are drawn from
  std::int32_t max_positions;   // length of a sequence
  std::int32_t vocabulary;
};

class LinkSender;

// What a step does behind a link: sequences that lie on the device there, whose block tables name blocks of it, and
// blocks that go there or come back before anything is computed.
struct RemoteInput {
  LinkSender* link;
  std::uint32_t generation;  // of the link, when their keys and values came there
  std::int32_t num_sequences;
  std::int32_t num_sends, num_calls_back;  // the next ones of `remote_moves`
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
  const std::int32_t* adapters;  // [sequences]: of the program's adapters, or -1; null where none has one
  std::int32_t num_remotes;    // the last sequences lie on other devices: so many parts of them
  const RemoteInput* remotes;
  const std::int32_t* remote_moves;  // of each part, its sends, then its calls back: block here and block there, in turn
  std::int32_t* lost;          // out, [remotes]: 1 where the part's rows and moves are worth nothing
  std::int32_t num_draw_rows;
  const std::int32_t* draw_rows;
  std::int32_t num_draws;
  const DrawInput* draws;
  const Bias* biases;                // of all draws that have any, one after another
  const std::int32_t* prior_tokens;  // of all draws with penalties, each prompt and output: ids, or cells as above
  const std::uint8_t* masks;         // of all draws that have one: token i may be drawn if bit i % 8 of byte i / 8 is set
  std::int32_t num_late_mask_bytes;  // of each
  const std::uint8_t* late_masks;    // read when they are given: of the draws whose masks are late, in their order
  const Word* late_masks_given;      // not 0: they are
  std::int32_t first_cell;           // draw i also goes to cell `first_cell` + i
  std::int32_t num_copies;
  const std::int32_t* copies;  // source and destination, in turn
  std::int32_t num_swaps_out;
  const std::int32_t* swaps_out;  // block on the device and block of the host, in turn
  std::int32_t num_swaps_in;
  const std::int32_t* swaps_in;  // likewise
  std::int32_t num_copies_out;
  const std::int32_t* copies_out;  // likewise; of blocks that the step does not write
  // out, all written before the step is done
  std::int32_t* tokens;       // [draws]: the token, or -1 where logits are not finite
  double* logprobs;           // [draws]: of the token, where asked for
  std::int32_t* top_tokens;   // of all draws, `num_top` each
  double* top_logprobs;
  float* logits;              // [draw rows][vocabulary], or null
  std::int32_t in_lanes;      // 1: through the program's lanes, which has some
  std::int32_t moves_beside;  // 1: blocks may move beside operators that do not touch their layer
};

// Rows of one sequence that attention takes together.
struct RowGroup {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t first_position;
  std::int32_t table;  // where the sequence's block table begins
  std::int32_t end_of_sequence = 0;  // the position behind its last row of the step
};

// A block that goes to the device behind a link, or comes back.
struct RemoteMove {
  bool is_send;
  std::int32_t line;   // where the block begins here
  std::int32_t block;  // its number there
};

// What a step does behind a link.
struct RemoteRange {
  LinkSender* link;
  std::uint32_t generation;
  std::int32_t first_row, end_row;
  std::vector<std::int32_t> starts, num_rows, num_blocks, blocks;  // of its sequences, as in `StepInput`
  std::vector<RemoteMove> moves;
  std::int32_t* lost;
};

// Where the key of a row goes that lies on another device.
constexpr std::int32_t kNowhere = -1;

// A block that moves, by the lines where it begins.
struct Move {
  std::int32_t source;
  std::int32_t destination;
};

enum class RowKind : std::int32_t { tokens, draws };

// Sequences of a step by what they are; gpu_node/graph/share.py says how they stand in it.
enum class Part : std::int32_t { all, prefill, decode, local, remote };
constexpr int kNumParts = 5;

// Of a part, what lies from `start` / `count` to `end` / `count` of its rows.
struct PartRange {
  Part part;
  std::int32_t start, end, count;

  friend bool operator==(const PartRange&, const PartRange&) = default;
};

// The sequences that lie in all of these; without any, the whole batch.
using Share = std::vector<PartRange>;

// Rows that stand together and have the same adapter.
struct AdaptedRows {
  std::int32_t adapter;
  std::int32_t first_row, end_row;
};

// A share of one step.
struct ShareRows {
  int first_row, end_row;
  int first_draw, end_draw;
  std::vector<std::int32_t> groups;  // indices, in the order of `Step::groups`
  std::vector<AdaptedRows> adapted_rows, adapted_draws;  // in pieces; rows without adapter are in none
};

// One draw with what it has of the step's arrays.
struct TokenDraw {
  DrawInput how;
  std::span<const Bias> biases;
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> output;
  std::span<const std::uint8_t> mask;  // empty: any token may be drawn; a late one is not there yet
  std::ptrdiff_t first_top;
};

struct Step {
  // `cells`: of the program, [kNumCells]. Throws std::invalid_argument where a number is outside of what the program
  // was made for. `shares`: those that operators work on.
  Step(const StepInput& input, const Limits& limits, const CacheShape& cache, const BlockPlaces& device,
       const BlockPlaces& host, int rows_together, std::int32_t* cells, const std::vector<Share>& shares);
  Step(Step&&) = default;  // the draws point into the arrays, which stay where they are
  Step& operator=(Step&&) = default;

  std::vector<std::int32_t> token_ids;   // [rows]
  std::vector<std::int32_t> positions;   // [rows]
  std::vector<std::int32_t> row_lines;   // [rows]: where the block begins that takes the row's key and value, or kNowhere
  std::vector<std::int32_t> draw_rows;   // [draw rows]
  std::vector<std::int32_t> block_lines;  // block tables, by the lines where the blocks begin
  std::vector<RowGroup> groups;  // of sequences that lie on this device
  std::vector<std::int32_t> sequence_rows;  // the first row of each sequence, and behind the last one its end
  std::vector<std::int32_t> adapters;  // [rows], or empty where none has one
  std::vector<ShareRows> shares;
  std::vector<RemoteRange> remotes;
  std::uint64_t number;  // another one for each step of the process
  std::vector<Move> swaps_out, copies, swaps_in;
  std::vector<Move> copies_out;  // left to operators of lanes; else they are among the swaps out
  std::vector<Bias> biases;
  std::vector<std::int32_t> prior_tokens;
  std::vector<std::uint8_t> masks;
  const Word* late_masks_given;
  std::vector<TokenDraw> draws;
  std::int32_t first_cell;
  std::int32_t* cells;
  std::int32_t* tokens;
  double* logprobs;
  std::int32_t* top_tokens;
  double* top_logprobs;
  float* logits;
  bool in_lanes;
  bool moves_beside;

  // First row and end of what there is of `kind` in share `share` of those that the program has.
  std::pair<int, int> rows(RowKind kind, int share) const {
    const ShareRows& own = shares[share];
    return kind == RowKind::tokens ? std::pair{own.first_row, own.end_row} : std::pair{own.first_draw, own.end_draw};
  }

  const std::vector<AdaptedRows>& adapted(RowKind kind, int share) const {
    return kind == RowKind::tokens ? shares[share].adapted_rows : shares[share].adapted_draws;
  }

  // The first row of the sequence that a row is of.
  int first_row_of(int row) const {
    return *std::prev(std::upper_bound(sequence_rows.begin(), sequence_rows.end(), row));
  }

  int num_rows() const { return static_cast<int>(token_ids.size()); }
  int first_remote_row() const { return remotes.empty() ? num_rows() : remotes.front().first_row; }
  int num_draw_rows() const { return static_cast<int>(draw_rows.size()); }
  int num_draws() const { return static_cast<int>(draws.size()); }
  // The token that `id` stands for; those in cells are there once the steps before have run.
  std::int32_t token(std::int32_t id) const { return id >= 0 ? id : cells[-1 - id]; }

 private:
  void take_remotes(const StepInput& input, const CacheShape& cache, const BlockPlaces& device);
  void take_draws(const StepInput& input, std::int32_t vocabulary);
  template <typename RowOf>
  std::vector<AdaptedRows> adapted_between(int first, int end, RowOf row_of) const;
  void take_shares(const StepInput& input, const std::vector<Share>& wanted);
};

}  // namespace treadle
