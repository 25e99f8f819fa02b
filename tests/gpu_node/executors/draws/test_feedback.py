"""Steps submitted ahead count on tokens that are not drawn yet, and give what they give one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.plan import (
    DRAWN,
    MAX_STEP_DRAWS,
    MAX_STEPS_AHEAD,
    Draw,
    ScheduledSequence,
    StepPlan,
    StepResult,
)
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.draws.cells import NUM_CELLS, Cells
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node import tiny
from tests.gpu_node.masks import mask_of

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20)
PROMPTS = {0: (5, 6, 7), 1: (9, 10), 2: (11, 12, 11, 13), 3: (40,)}
SAMPLING = {
    0: Sampling(max_tokens=99, temperature=0.0),
    1: Sampling(max_tokens=99, temperature=1.3, seed=4, top_p=0.95),
    2: Sampling(max_tokens=99, temperature=0.0, frequency_penalty=0.6, presence_penalty=0.3, repetition_penalty=1.3),
    3: Sampling(max_tokens=99, temperature=1.0, seed=8, repetition_penalty=2.0, frequency_penalty=2.0),
}


@pytest.fixture(params=["reference", "cpu"])
def executor(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Executor]:
    if request.param == "reference":
        reference = ReferenceExecutor(OPTIONS)
        load(reference, tiny_path)
        yield reference
    else:
        fast = CpuExecutor(OPTIONS, num_threads=2)
        load(fast, tiny_path)
        yield fast
        fast.close()


def load(executor: Executor, path: Path) -> None:
    executor.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))


def part(
    sequence_id: int, token_ids: tuple[int, ...], start: int, known: list[int], position: int
) -> ScheduledSequence:
    draw = Draw(
        sequence_id,
        SAMPLING[sequence_id],
        position,
        choice=sequence_id % 2,
        prompt_token_ids=PROMPTS[sequence_id],
        output_token_ids=known,
    )
    table = tuple(range(8 * sequence_id, 8 * sequence_id + 8))
    return ScheduledSequence(sequence_id, token_ids, start, table, (draw,))


def prefills() -> StepPlan:
    return StepPlan(tuple(part(number, prompt, 0, [], 0) for number, prompt in PROMPTS.items()))


def decodes(position: int, inputs: dict[int, int], known: dict[int, list[int]]) -> StepPlan:
    """The step that draws the tokens at ``position`` of all outputs."""
    return StepPlan(
        tuple(
            part(number, (inputs[number],), len(prompt) + position - 1, known[number], position)
            for number, prompt in PROMPTS.items()
        )
    )


def one_by_one(executor: Executor, num_tokens: int) -> dict[int, list[int]]:
    outputs: dict[int, list[int]] = {number: [] for number in PROMPTS}
    for position in range(num_tokens):
        last = {number: output[-1] for number, output in outputs.items() if output}
        plan = decodes(position, last, outputs) if position else prefills()
        take(outputs, executor.submit(plan).result())
    return outputs


def ahead(executor: Executor, num_tokens: int, num_ahead: int) -> dict[int, list[int]]:
    """With so many steps in the queue when the next is submitted, none of whose tokens anybody has seen."""
    outputs: dict[int, list[int]] = {number: [] for number in PROMPTS}
    pending = [executor.submit(prefills())]
    for position in range(1, num_tokens):
        if len(pending) > num_ahead:
            take(outputs, pending.pop(0).result())
        pending.append(executor.submit(decodes(position, dict.fromkeys(PROMPTS, DRAWN), outputs)))
    for step in pending:
        take(outputs, step.result())
    return outputs


def take(outputs: dict[int, list[int]], result: StepResult) -> None:
    assert result.token_ids.keys() == outputs.keys()
    for number, token in result.token_ids.items():
        outputs[number] = [*outputs[number], token]


@pytest.mark.parametrize("num_ahead", [0, 1, 7, MAX_STEPS_AHEAD - 1])
def test_steps_submitted_ahead_draw_what_steps_one_by_one_draw(executor: Executor, num_ahead: int) -> None:
    """Greedy and sampled, with penalties and without; more steps than the ring of cells has places."""
    expected = one_by_one(executor, 2 * MAX_STEPS_AHEAD)
    assert ahead(executor, 2 * MAX_STEPS_AHEAD, num_ahead) == expected
    assert expected[2] != expected[0]
    assert all(len(set(output)) > 3 for output in expected.values())


def test_penalties_change_the_output_that_is_fed_back(executor: Executor) -> None:
    """Else the test above would hold without them."""
    penalised = one_by_one(executor, 20)
    for number in (2, 3):
        plain = Sampling(max_tokens=99, temperature=SAMPLING[number].temperature, seed=SAMPLING[number].seed)
        first = part(number, PROMPTS[number], 0, [], 0)
        output: list[int] = []
        for position in range(20):
            draw = Draw(number, plain, position, choice=number % 2)
            token_ids = (output[-1],) if output else first.token_ids
            start = len(PROMPTS[number]) + position - 1 if output else 0
            step = ScheduledSequence(number, token_ids, start, first.block_table, (draw,))
            output.append(executor.submit(StepPlan((step,))).result().token_ids[number])
        assert output != penalised[number]


def test_several_draws_of_a_row_begin_sequences_that_are_fed_back_each_its_own_token(executor: Executor) -> None:
    sampling = Sampling(max_tokens=9, temperature=1.5, seed=3)
    draws = tuple(Draw(10 + choice, sampling, 0, choice) for choice in range(6))
    first = executor.submit(StepPlan((ScheduledSequence(10, (5, 6, 7), 0, (0,), draws),)))

    def second(inputs: list[int]) -> StepPlan:
        # each in a block of its own, computed whole
        return StepPlan(
            tuple(
                ScheduledSequence(10 + n, (5, 6, 7, token), 0, (n + 1,), (Draw(10 + n, sampling, 1, n),))
                for n, token in enumerate(inputs)
            )
        )

    blind = executor.submit(second([DRAWN] * 6)).result()
    drawn = [first.result().token_ids[10 + n] for n in range(6)]
    assert len(set(drawn)) > 1, "each choice has numbers of its own"
    assert blind.token_ids == executor.submit(second(drawn)).result().token_ids


def test_a_step_behind_one_that_drew_nothing_runs_all_the_same(tmp_path: Path) -> None:
    tensors = {name: np.array(values) for name, values in tiny.tensors_of(tiny.make_model()).items()}
    tensors["token_embd.weight"][9] = math.nan  # token 9, as an input, and the logit of token 9
    for executor in (ReferenceExecutor(OPTIONS), CpuExecutor(OPTIONS, num_threads=1)):
        load(executor, tiny.write_gguf(tmp_path / "broken.gguf", tensors))
        steps = [executor.submit(prefills())]
        steps += [executor.submit(decodes(n, dict.fromkeys(PROMPTS, DRAWN), {k: [] for k in PROMPTS})) for n in (1, 2)]
        for step in steps:
            result = step.result()
            assert (result.token_ids, result.errors) == ({}, dict.fromkeys(PROMPTS, NOT_FINITE))
        if isinstance(executor, CpuExecutor):
            executor.close()


def test_both_executors_give_logprobs_where_they_are_asked_for(executor: Executor) -> None:
    greedy = SAMPLING[0]
    parts = tuple(
        ScheduledSequence(number, (5, 6, 7), 0, (number,), (Draw(number, greedy, 0, num_top=num_top),))
        for number, num_top in enumerate([None, 0, 4])
    )
    result = executor.submit(StepPlan(parts)).result()
    assert result.logprobs.keys() == {1, 2}
    assert result.logprobs[1].top == []
    assert len(result.logprobs[2].top) == 4
    assert result.logprobs[2].top[0] == (result.token_ids[2], result.logprobs[2].logprob)
    assert result.logprobs[1].logprob == pytest.approx(result.logprobs[2].logprob, abs=1e-5)
    assert result.logprobs[1].logprob < 0


def test_both_executors_draw_what_masks_allow_also_in_steps_ahead(executor: Executor) -> None:
    """Sequence 2 has no mask, and penalties over what the masked step before it drew."""

    def masked(plan: StepPlan, tokens: dict[int, list[int]]) -> StepPlan:
        parts = []
        for part in plan.sequences:
            allowed = mask_of(tokens[part.sequence_id]) if part.sequence_id in tokens else b""
            parts.append(replace(part, draws=tuple(replace(draw, allowed=allowed) for draw in part.draws)))
        return replace(plan, sequences=tuple(parts))

    inputs, nothing_known = dict.fromkeys(PROMPTS, DRAWN), {number: list[int]() for number in PROMPTS}
    first = executor.submit(masked(prefills(), {0: [3], 1: [8, 9], 2: [50], 3: [95]}))
    second = executor.submit(masked(decodes(1, inputs, nothing_known), {0: [7], 1: [1], 3: [11, 12]}))
    tokens, later = first.result().token_ids, second.result().token_ids
    assert (tokens[0], tokens[2], tokens[3]) == (3, 50, 95)
    assert tokens[1] in (8, 9)
    assert (later[0], later[1]) == (7, 1)
    assert later[3] in (11, 12)
    known = decodes(1, dict(tokens), {number: [token] for number, token in tokens.items()})
    assert executor.submit(known).result().token_ids[2] == later[2]


def test_the_predicted_executor_needs_no_feedback_and_finds_all_tokens_equally_likely() -> None:
    executor = PredictedExecutor(StepCost(0.01, 0.001, 0.0001), OPTIONS, token_kv_bytes=64, vocab_size=50)
    assert ahead(executor, 8, 7) == one_by_one(executor, 8)
    draws = tuple(Draw(n, Sampling(max_tokens=9, seed=1), 0, choice=n, num_top=2) for n in range(4))
    result = executor.submit(StepPlan((ScheduledSequence(0, (1,), 0, (0,), draws),))).result()
    assert len(set(result.token_ids.values())) > 1
    assert result.logprobs[3] == TokenLogprob(-math.log(50), [(0, -math.log(50)), (1, -math.log(50))])


# --- the bookkeeping of marks ---------------------------------------------------------------------------------------


def decode(token: int, position: int, known: list[int]) -> tuple[ScheduledSequence, Draw]:
    scheduled = part(0, (token,), 9, known, position)
    return scheduled, scheduled.draws[0]


def test_a_plan_gets_the_marks_of_the_last_steps() -> None:
    feedback = Feedback()
    feedback.remember({0: 71, 1: 72})
    feedback.remember({1: 73})
    feedback.remember({0: 74})
    assert feedback.token_ids(part(0, (5, DRAWN), 3, [], 2)) == (5, 74)
    assert feedback.token_ids(part(0, (5, 6), 3, [], 2)) == (5, 6)
    # all known; all but the row's own, which the plan has or has not; two on their way
    assert feedback.output(*decode(8, 2, [7, 8])) == [7, 8]
    assert feedback.output(*decode(8, 2, [7])) == [7, 8]
    assert feedback.output(*decode(DRAWN, 2, [7])) == [7, 74]
    assert feedback.output(*decode(DRAWN, 3, [7])) == [7, 71, 74]


def test_what_is_not_remembered_is_asked_for_in_vain() -> None:
    feedback = Feedback()
    with pytest.raises(ValueError, match=r"sequence 0: the plan counts on the last 1 drawn tokens; .* 0 drew for it"):
        feedback.token_ids(part(0, (DRAWN,), 3, [], 2))
    feedback.remember({0: 71})
    with pytest.raises(ValueError, match="counts on the last 2 drawn tokens"):
        feedback.output(*decode(DRAWN, 2, []))
    with pytest.raises(ValueError, match="a draw at position 3 comes with an output of 1"):
        feedback.output(*decode(8, 3, [7]))
    for _ in range(MAX_STEPS_AHEAD - 1):
        feedback.remember({})
    assert feedback.token_ids(part(0, (DRAWN,), 3, [], 2)) == (71,)
    feedback.remember({})
    with pytest.raises(ValueError, match="counts on the last 1 drawn tokens"):
        feedback.token_ids(part(0, (DRAWN,), 3, [], 2))


def test_cells_of_a_step_and_of_those_that_it_may_name_lie_apart() -> None:
    cells = Cells()
    taken = [cells.take(MAX_STEP_DRAWS) for _ in range(3 * MAX_STEPS_AHEAD)]
    assert min(taken) == 0
    assert max(taken) == NUM_CELLS - MAX_STEP_DRAWS
    for last in range(MAX_STEPS_AHEAD, len(taken)):
        assert len(set(taken[last - MAX_STEPS_AHEAD : last + 1])) == MAX_STEPS_AHEAD + 1
    with pytest.raises(ValueError, match=f"a step of {MAX_STEP_DRAWS + 1} draws; {MAX_STEP_DRAWS} are the most"):
        cells.take(MAX_STEP_DRAWS + 1)
