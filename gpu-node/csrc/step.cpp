#include "step.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "link_sender.h"
#include "token_mask.h"

namespace treadle {
namespace {

constexpr int kMaxAdaptedRows = 64;  // of a piece, so that a prompt is work for several threads

void require(bool condition, const char* text) {
  if (!condition) throw std::invalid_argument(text);
}

bool all_between(const std::vector<std::int32_t>& values, std::int32_t least, std::int32_t bound) {
  return std::all_of(values.begin(), values.end(), [&](std::int32_t value) { return least <= value && value < bound; });
}

bool all_below(const std::vector<std::int32_t>& values, std::int32_t bound) { return all_between(values, 0, bound); }

std::int32_t line_of(std::int32_t block, const BlockPlaces& places) {
  require(places.has(block), "a block is outside the cache");
  return places.line(block);
}

// `blocks`: two a move.
std::vector<Move> moves(const std::int32_t* blocks, int num_moves, const BlockPlaces& source,
                        const BlockPlaces& destination) {
  std::vector<Move> made;
  for (int i = 0; i < num_moves; ++i)
    made.push_back({line_of(blocks[2 * i], source), line_of(blocks[2 * i + 1], destination)});
  return made;
}

int num_remote_sequences(const StepInput& input) {
  return std::accumulate(input.remotes, input.remotes + input.num_remotes, 0,
                         [](int sum, const RemoteInput& remote) { return sum + remote.num_sequences; });
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Step::Step(const StepInput& input, const Limits& limits, const CacheShape& cache, const BlockPlaces& device,
           const BlockPlaces& host, int rows_together, std::int32_t* cells, const std::vector<Share>& shares)
    : draw_rows(input.draw_rows, input.draw_rows + input.num_draw_rows),
      number(next_number()),
      late_masks_given(input.late_masks_given),
      first_cell(input.first_cell),
      cells(cells),
      tokens(input.tokens),
      logprobs(input.logprobs),
      top_tokens(input.top_tokens),
      top_logprobs(input.top_logprobs),
      logits(input.logits),
      in_lanes(input.in_lanes != 0),
      moves_beside(input.moves_beside != 0) {
  std::int64_t num_rows = 0, num_table = 0;
  const int num_local = input.num_sequences - num_remote_sequences(input);
  require(num_local >= 0, "more sequences lie on other devices than there are");
  for (int i = 0; i < input.num_sequences; ++i) {
    require(input.starts[i] >= 0 && input.num_rows[i] > 0, "a sequence has at least one row, after no fewer than 0");
    const std::int64_t end = std::int64_t{input.starts[i]} + input.num_rows[i];
    require(end <= limits.max_positions, "a sequence is longer than the program was made for");
    require((end + cache.block_size - 1) / cache.block_size <= input.num_blocks[i], "a block table is too short");
    const bool is_local = i < num_local;
    for (int done = 0; is_local && done < input.num_rows[i]; done += rows_together) {
      groups.push_back({static_cast<std::int32_t>(num_rows) + done, std::min(rows_together, input.num_rows[i] - done),
                        input.starts[i] + done, static_cast<std::int32_t>(num_table), static_cast<std::int32_t>(end)});
    }
    for (int block = 0; is_local && block < input.num_blocks[i]; ++block)
      block_lines.push_back(line_of(input.block_tables[num_table + block], device));
    for (std::int32_t position = input.starts[i]; position < end; ++position) {
      positions.push_back(position);
      row_lines.push_back(is_local ? block_lines[num_table + position / cache.block_size] : kNowhere);
    }
    if (input.adapters != nullptr) adapters.insert(adapters.end(), input.num_rows[i], input.adapters[i]);
    sequence_rows.push_back(static_cast<std::int32_t>(num_rows));
    num_rows += input.num_rows[i];
    num_table += input.num_blocks[i];
  }
  sequence_rows.push_back(static_cast<std::int32_t>(num_rows));
  require(num_rows <= limits.max_rows && num_draw_rows() <= limits.max_draws, "more rows than the program was made for");
  token_ids.assign(input.token_ids, input.token_ids + num_rows);
  take_remotes(input, cache, device);
  swaps_out = moves(input.swaps_out, input.num_swaps_out, device, host);
  copies = moves(input.copies, input.num_copies, device, device);
  swaps_in = moves(input.swaps_in, input.num_swaps_in, device, host);
  for (Move& move : swaps_in) std::swap(move.source, move.destination);
  copies_out = moves(input.copies_out, input.num_copies_out, device, host);
  require(all_between(token_ids, -kNumCells, limits.vocabulary), "a token id is outside the vocabulary");
  require(all_below(draw_rows, static_cast<std::int32_t>(num_rows)), "a row that draws is outside the batch");
  take_draws(input, limits.vocabulary);
  // the longest contexts first, so that no thread begins one when the others are at their end
  std::stable_sort(groups.begin(), groups.end(), [](const RowGroup& a, const RowGroup& b) {
    return (a.first_position + a.num_rows) * a.num_rows > (b.first_position + b.num_rows) * b.num_rows;
  });
  take_shares(input, shares);
}

void Step::take_remotes(const StepInput& input, const CacheShape& cache, const BlockPlaces& device) {
  const std::int32_t* moves = input.remote_moves;
  int sequence = input.num_sequences - num_remote_sequences(input);
  std::ptrdiff_t table = std::accumulate(input.num_blocks, input.num_blocks + sequence, std::ptrdiff_t{0});
  for (int i = 0; i < input.num_remotes; ++i) {
    const RemoteInput& remote = input.remotes[i];
    require(remote.link != nullptr && remote.num_sequences >= 0 && remote.num_sends >= 0 && remote.num_calls_back >= 0,
            "a part on another device has a link, and no count below 0");
    require(std::none_of(remotes.begin(), remotes.end(), [&](const RemoteRange& one) { return one.link == remote.link; }),
            "a link stands once in a step");
    const LinkShape& shape = remote.link->shape();
    const CacheShape blocks = shape.cache(cache.num_blocks);
    require(std::tie(blocks.num_layers, blocks.block_size, blocks.num_kv_heads, blocks.head_dim) ==
                std::tie(cache.num_layers, cache.block_size, cache.num_kv_heads, cache.head_dim),
            "a link is for blocks of another model");
    const int end = sequence + remote.num_sequences;
    RemoteRange range{remote.link,
                      remote.generation,
                      sequence_rows[sequence],
                      sequence_rows[end],
                      {input.starts + sequence, input.starts + end},
                      {input.num_rows + sequence, input.num_rows + end},
                      {input.num_blocks + sequence, input.num_blocks + end},
                      {},
                      {},
                      input.lost + i};
    for (int move = 0; move < remote.num_sends + remote.num_calls_back; ++move, moves += 2)
      range.moves.push_back({move < remote.num_sends, line_of(moves[0], device), moves[1]});
    const std::ptrdiff_t num_blocks = std::accumulate(range.num_blocks.begin(), range.num_blocks.end(), std::ptrdiff_t{0});
    range.blocks.assign(input.block_tables + table, input.block_tables + table + num_blocks);
    require(remote.num_sequences <= shape.max_sequences && range.end_row - range.first_row <= shape.max_rows &&
                num_blocks <= shape.max_blocks,
            "more lies behind a link than it was made for");
    remotes.push_back(std::move(range));
    sequence = end;
    table += num_blocks;
    input.lost[i] = 0;
  }
}

void Step::take_draws(const StepInput& input, std::int32_t vocabulary) {
  require(0 <= first_cell && first_cell + std::int64_t{input.num_draws} <= kNumCells, "more draws than there are cells");
  std::int64_t num_biases = 0, num_prior = 0, num_mask_bytes = 0, num_top = 0;
  for (const DrawInput& how : std::span(input.draws, input.num_draws)) {
    require(0 <= how.row && how.row < num_draw_rows(), "a draw from a row that has no logits");
    require(how.temperature >= 0.0 && how.top_p > 0.0 && how.min_p >= 0.0 && how.repetition_penalty > 0.0,
            "a draw with a number that it cannot have");
    require(how.top_k >= 0 && -1 <= how.num_top && how.num_top <= vocabulary, "more logprobs than there are tokens");
    require(how.num_biases >= 0 && how.num_prompt_tokens >= 0 && how.num_output_tokens >= 0 && how.num_mask_bytes >= 0,
            "a count below 0");
    num_biases += how.num_biases;
    num_prior += how.num_prompt_tokens + how.num_output_tokens;
    num_mask_bytes += how.num_mask_bytes;
  }
  biases.assign(input.biases, input.biases + num_biases);
  prior_tokens.assign(input.prior_tokens, input.prior_tokens + num_prior);
  masks.assign(input.masks, input.masks + num_mask_bytes);
  require(all_between(prior_tokens, -kNumCells, vocabulary), "a token of a prompt or output is outside the vocabulary");
  require(std::all_of(biases.begin(), biases.end(), [&](const Bias& bias) {
            return 0 <= bias.token_id && bias.token_id < vocabulary;
          }), "a bias is for a token outside the vocabulary");
  const Bias* bias = biases.data();
  const std::int32_t* prior = prior_tokens.data();
  const std::uint8_t *mask = masks.data(), *late_mask = input.late_masks;
  for (const DrawInput& how : std::span(input.draws, input.num_draws)) {
    const std::int32_t* output = prior + how.num_prompt_tokens;
    draws.push_back({how, std::span(bias, how.num_biases), std::span(prior, output),
                     std::span(output, how.num_output_tokens), std::span(mask, how.num_mask_bytes), num_top});
    require(how.num_mask_bytes == 0 || allows_tokens_of(draws.back().mask, vocabulary),
            "a mask allows no token, or one outside the vocabulary");
    if (how.is_mask_late != 0) {
      require(how.num_mask_bytes == 0 && late_masks_given != nullptr,
              "a late mask is not there, and a word says when it is");
      draws.back().mask = {late_mask, static_cast<std::size_t>(input.num_late_mask_bytes)};
      late_mask += input.num_late_mask_bytes;
    }
    bias += how.num_biases;
    prior = output + how.num_output_tokens;
    mask += how.num_mask_bytes;
    num_top += std::max(how.num_top, 0);
  }
}

// `row_of`: the row of the batch that each of these stands for.
template <typename RowOf>
std::vector<AdaptedRows> Step::adapted_between(int first, int end, RowOf row_of) const {
  std::vector<AdaptedRows> pieces;
  for (int row = first; row < end; ++row) {
    const std::int32_t adapter = adapters[row_of(row)];
    if (adapter < 0) continue;
    const bool goes_on = !pieces.empty() && pieces.back().adapter == adapter && pieces.back().end_row == row &&
                         row - pieces.back().first_row < kMaxAdaptedRows;
    if (goes_on)
      ++pieces.back().end_row;
    else
      pieces.push_back({adapter, row, row + 1});
  }
  return pieces;
}

void Step::take_shares(const StepInput& input, const std::vector<Share>& wanted) {
  const int num_sequences = input.num_sequences, first_remote = num_sequences - num_remote_sequences(input);
  int first_decode = num_sequences;
  while (first_decode > 0 && input.num_rows[first_decode - 1] == 1) --first_decode;

  // first sequence and end of each part
  const std::array<std::pair<int, int>, kNumParts> parts{{{0, num_sequences},
                                                          {0, first_decode},
                                                          {first_decode, num_sequences},
                                                          {0, first_remote},
                                                          {first_remote, num_sequences}}};
  // a fraction's place is the first sequence that has at least so much of the part's rows before it
  const auto cut = [&](const PartRange& range, std::int64_t number) {
    const auto [first, end] = parts[static_cast<std::size_t>(range.part)];
    const std::int64_t before = sequence_rows[first], rows = sequence_rows[end] - before;
    const auto begin = sequence_rows.begin();
    const auto found = std::find_if(begin + first, begin + end, [&](std::int64_t rows_before) {
      return (rows_before - before) * range.count >= rows * number;
    });
    return static_cast<int>(found - begin);
  };
  for (const Share& share : wanted) {
    int first = 0, end = num_sequences;
    for (const PartRange& range : share) {
      first = std::max(first, cut(range, range.start));
      end = std::min(end, cut(range, range.end));
    }
    end = std::max(first, end);
    const int first_row = sequence_rows[first], end_row = sequence_rows[end];
    const auto draws_before = [&](int row) {
      return static_cast<int>(std::lower_bound(draw_rows.begin(), draw_rows.end(), row) - draw_rows.begin());
    };
    ShareRows own{first_row, end_row, draws_before(first_row), draws_before(end_row), {}, {}, {}};
    if (!adapters.empty()) {
      own.adapted_rows = adapted_between(own.first_row, own.end_row, [](int row) { return row; });
      own.adapted_draws = adapted_between(own.first_draw, own.end_draw, [&](int draw) { return draw_rows[draw]; });
    }
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (first_row <= groups[i].first_row && groups[i].first_row < end_row)
        own.groups.push_back(static_cast<std::int32_t>(i));
    shares.push_back(std::move(own));
  }
}

}  // namespace treadle
