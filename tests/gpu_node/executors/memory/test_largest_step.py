"""The step that shows how much memory steps need."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.model import LoadedModel
from gpu_node.executors.memory.largest_step import NUM_TOP, largest_step
from shared.config.engines.engine import EngineOptions


@pytest.mark.parametrize(
    ("max_num_seqs", "step_tokens", "num_rows"),
    [
        (3, 8, [1, 1, 6]),
        (3, 40, [8, 16, 16]),  # 16 are the most of one sequence
        (3, 100, [16, 16, 16]),  # there is no larger step
        (8, 5, [1, 1, 1, 1, 1]),
        (1, 7, [7]),
    ],
)
def test_the_largest_step_has_all_that_may_be_in_one(max_num_seqs: int, step_tokens: int, num_rows: list[int]) -> None:
    model = LoadedModel(
        "m", 9, block_size=6, block_bytes=64, max_model_len=16, vocab_size=50, eos_token_ids=frozenset()
    )
    plan = largest_step(model, EngineOptions(max_num_seqs=max_num_seqs, step_tokens=step_tokens))
    assert [len(part.token_ids) for part in plan.sequences] == num_rows
    assert {part.start + len(part.token_ids) for part in plan.sequences} == {16}, "the longest contexts"
    assert {part.block_table for part in plan.sequences} == {(0, 1, 2)}, "the blocks of one sequence"
    draws = [draw for part in plan.sequences for draw in part.draws]
    assert len(draws) == len(num_rows)
    assert all(draw.num_top == NUM_TOP and draw.sampling.has_penalties for draw in draws)
