"""Random arrivals and aborts: everything ends, in order, with the tokens it would have had alone; nothing leaks."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpu_node.engine.plan import StepPlan, StepResult
from gpu_node.engine.preemption import AlwaysRecompute, PreemptionPolicy
from tests.engine.bookkeeping import OldestFirst, payload, scheduler, teach_short_outputs

BLOCK_SIZE = 2
MAX_MODEL_LEN = 16


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: list[int]
    output: list[int]
    max_tokens: int
    aborted_at: int | None


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 4),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    output=st.lists(st.integers(0, 1), max_size=3),
    max_tokens=st.integers(1, 15),
    aborted_at=st.sampled_from([None, None, None, 1, 2, 3, 5, 8, 13]),
)


def draw_all(plan: StepPlan) -> StepResult:
    """A token that depends on the position only, as from a real executor."""
    drawn = {draw.sequence_id: draw.position % 2 for part in plan.sequences for draw in part.draws}
    return StepResult(drawn, 0.01)


@settings(max_examples=200, deadline=None)
@given(
    requests=st.lists(arrivals, min_size=3, max_size=8),
    num_blocks=st.integers(8, 10),
    step_tokens=st.integers(1, 12),
    max_num_seqs=st.integers(1, 4),
    policy=st.sampled_from([AlwaysRecompute(), OldestFirst()]),
)
def test_everything_ends_and_nothing_leaks(
    requests: list[Arrival], num_blocks: int, step_tokens: int, max_num_seqs: int, policy: PreemptionPolicy
) -> None:
    one = scheduler(num_blocks, BLOCK_SIZE, MAX_MODEL_LEN, step_tokens, max_num_seqs, policy)
    teach_short_outputs(one)
    outputs = {number: list(request.output) for number, request in enumerate(requests)}
    ends: dict[int, str] = {}
    for step in range(600):
        for number, request in enumerate(requests):
            if request.step == step:
                ended = one.add(payload(str(number), request.prompt, request.max_tokens, request.output))
                if ended is not None:
                    ends[number] = ended.finish_reason
            if request.aborted_at == step and one.abort(str(number)):
                ends[number] = "aborted"
        one.check()
        if one.has_work:
            plan = one.schedule(now=float(step))
            one.check()
            assert 0 < plan.num_tokens <= step_tokens, "every step moves something, within its budget"
            for chunk in one.commit(plan, draw_all(plan)):
                number = int(chunk.request_id)
                assert chunk.index == len(outputs[number]), "no token is lost or doubled"
                outputs[number] += chunk.token_ids
                if chunk.finish_reason:
                    ends[number] = chunk.finish_reason
            one.check()
        elif step > 13:
            break
    assert ends.keys() == outputs.keys(), "every request ends"
    event("preempted" if one.num_preemptions else "never preempted")
    assert one.blocks.num_free_blocks == num_blocks
    for number, request in enumerate(requests):
        expected = [*request.output, *(position % 2 for position in range(len(request.output), request.max_tokens))]
        limit = min(len(expected), MAX_MODEL_LEN - len(request.prompt))
        if ends[number] == "length" and len(request.output) <= limit:
            assert outputs[number] == expected[:limit]
