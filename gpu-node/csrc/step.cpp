#include "step.h"

#include <algorithm>
#include <stdexcept>

namespace treadle {
namespace {

void require(bool condition, const char* text) {
  if (!condition) throw std::invalid_argument(text);
}

bool all_below(const std::vector<std::int32_t>& values, std::int32_t bound) {
  return std::all_of(values.begin(), values.end(), [&](std::int32_t value) { return 0 <= value && value < bound; });
}

}  // namespace

Step::Step(const StepInput& input, const Limits& limits, const CacheShape& cache, int rows_together)
    : draw_rows(input.draw_rows, input.draw_rows + input.num_draws), tokens(input.tokens), logits(input.logits) {
  std::int64_t num_rows = 0, num_table = 0;
  for (int i = 0; i < input.num_sequences; ++i) {
    require(input.starts[i] >= 0 && input.num_rows[i] > 0, "a sequence has at least one row, after no fewer than 0");
    const std::int64_t end = std::int64_t{input.starts[i]} + input.num_rows[i];
    require(end <= limits.max_positions, "a sequence is longer than the program was made for");
    require((end + cache.block_size - 1) / cache.block_size <= input.num_blocks[i], "a block table is too short");
    for (int done = 0; done < input.num_rows[i]; done += rows_together) {
      groups.push_back({static_cast<std::int32_t>(num_rows) + done, std::min(rows_together, input.num_rows[i] - done),
                        input.starts[i] + done, static_cast<std::int32_t>(num_table)});
    }
    for (std::int32_t position = input.starts[i]; position < end; ++position) {
      positions.push_back(position);
      row_blocks.push_back(input.block_tables[num_table + position / cache.block_size]);
    }
    sequence_rows.push_back(static_cast<std::int32_t>(num_rows));
    num_rows += input.num_rows[i];
    num_table += input.num_blocks[i];
  }
  require(num_rows <= limits.max_rows && input.num_draws <= limits.max_draws, "more rows than the program was made for");
  sequence_rows.push_back(static_cast<std::int32_t>(num_rows));
  token_ids.assign(input.token_ids, input.token_ids + num_rows);
  block_tables.assign(input.block_tables, input.block_tables + num_table);
  for (int i = 0; i < input.num_copies; ++i) copies.push_back({input.copies[2 * i], input.copies[2 * i + 1]});
  const std::vector<std::int32_t> copied(input.copies, input.copies + 2 * input.num_copies);
  require(all_below(token_ids, limits.vocabulary), "a token id is outside the vocabulary");
  require(all_below(block_tables, cache.num_blocks) && all_below(copied, cache.num_blocks), "a block is outside the cache");
  require(all_below(draw_rows, static_cast<std::int32_t>(num_rows)), "a row that draws is outside the batch");
  // the longest contexts first, so that no thread begins one when the others are at their end
  std::stable_sort(groups.begin(), groups.end(), [](const RowGroup& a, const RowGroup& b) {
    return (a.first_position + a.num_rows) * a.num_rows > (b.first_position + b.num_rows) * b.num_rows;
  });
}

std::pair<int, int> Step::rows_of(Share share) const {
  const auto cut = [&](std::int64_t number) {
    return *std::find_if(sequence_rows.begin(), sequence_rows.end(),
                         [&](std::int64_t rows) { return rows * share.count >= num_rows() * number; });
  };
  return {cut(share.index), cut(share.index + 1)};
}

}  // namespace treadle
