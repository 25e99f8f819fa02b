"""Draws of an NVIDIA device whose masks come when their step is under way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.engine.border.executor import LateMasks
from gpu_node.engine.border.plan import DRAWN, Draw, ScheduledSequence, StepPlan
from gpu_node.executors.cuda.draws import MaskedStep
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling

GREEDY = Sampling(8, temperature=0.0)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EVEN, ODD = b"\x55" * 12, b"\xaa" * 12


def executors(path: Path) -> tuple[CudaExecutor, ReferenceExecutor]:
    options = EngineOptions(kv_cache_bytes=1 << 20, block_size=4)
    made = CudaExecutor(options, DEVICE, dtype=torch.float32), ReferenceExecutor(options)
    for executor in made:
        executor.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=32))
    return made


def plan(*parts: tuple[list[int], int, Draw]) -> StepPlan:
    return StepPlan(
        tuple(
            ScheduledSequence(draw.sequence_id, tuple(token_ids), start, (2 * number, 2 * number + 1), (draw,))
            for number, (token_ids, start, draw) in enumerate(parts)
        )
    )


def test_the_second_token_is_of_a_mask_that_hangs_on_the_first(tiny_path: Path) -> None:
    ours, plain = executors(tiny_path)
    assert isinstance(ours, LateMasks)
    assert not isinstance(plain, LateMasks)
    prompts = [5, 6, 7], [8, 9, 10]
    first = plan(*((prompt, 0, Draw(number, GREEDY, 0, allowed=EVEN)) for number, prompt in enumerate(prompts)))
    begun = ours.submit(first)
    late = [Draw(0, GREEDY, 1, is_mask_late=True), Draw(1, GREEDY, 1)]
    step = ours.submit(plan(*(([DRAWN], 3, draw) for draw in late)))
    assert isinstance(step, MaskedStep)
    assert not step.is_done()
    tokens = begun.result().token_ids
    assert tokens == plain.submit(first).result().token_ids
    assert all(token % 2 == 0 for token in tokens.values())
    ours.give_masks(step, {0: ODD})
    told = [Draw(0, GREEDY, 1, allowed=ODD), Draw(1, GREEDY, 1)]
    expected = plain.submit(plan(*(([tokens[number]], 3, draw) for number, draw in enumerate(told)))).result().token_ids
    assert step.result().token_ids == expected
    assert expected[0] % 2 == 1


def test_a_draw_that_nobody_wants_any_more_has_no_mask(tiny_path: Path) -> None:
    ours, plain = executors(tiny_path)
    begun = ours.submit(plan(([5, 6, 7], 0, Draw(0, GREEDY, 0, allowed=EVEN))))
    step = ours.submit(plan(([DRAWN], 3, Draw(0, GREEDY, 1, is_mask_late=True))))
    assert isinstance(step, MaskedStep)
    ours.give_masks(step, {})
    (token,) = begun.result().token_ids.values()
    plain.submit(plan(([5, 6, 7], 0, Draw(0, GREEDY, 0, allowed=EVEN))))
    assert step.result().token_ids == plain.submit(plan(([token], 3, Draw(0, GREEDY, 1)))).result().token_ids


@pytest.mark.parametrize("missing", ["result", "twice"])
def test_masks_are_given_once_and_before_the_result(tiny_path: Path, missing: str) -> None:
    ours, _ = executors(tiny_path)
    ours.submit(plan(([5, 6, 7], 0, Draw(0, GREEDY, 0, allowed=EVEN))))
    step = ours.submit(plan(([DRAWN], 3, Draw(0, GREEDY, 1, is_mask_late=True))))
    assert isinstance(step, MaskedStep)
    if missing == "result":
        with pytest.raises(AssertionError, match="its masks come first"):
            step.result()
        return
    ours.give_masks(step, {0: ODD})
    with pytest.raises(AssertionError, match="masks are given once"):
        ours.give_masks(step, {0: ODD})
