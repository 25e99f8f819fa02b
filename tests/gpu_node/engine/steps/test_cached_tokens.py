"""Prompt tokens that were in a cache, as clients are told: blocks of 4 tokens, 16 tokens a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.engine.steps.admission.preemption import AlwaysRecompute, PreemptionPolicy, SwapIfRoom
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Output
from tests.gpu_node.bookkeeping import payload, prompt, scheduler, step, teach_short_outputs
from tests.gpu_node.engine.steps.test_scheduler_choices import continued
from tests.gpu_node.engine.steps.test_scheduler_eviction import evict


def told(one: Scheduler, request_id: str) -> list[int | None]:
    """What all chunks of a request say, until nothing is left to do."""
    said = []
    while one.has_work:
        said += [chunk.cached_tokens for chunk in step(one)[1] if chunk.request_id == request_id]
    return said


def with_cached(num_tokens: int, num_blocks: int = 100, **given: object) -> Scheduler:
    """A prompt of so many tokens was computed."""
    one = scheduler(num_blocks=num_blocks, step_tokens=16, **given)  # type: ignore[arg-type]
    one.add(payload("before", prompt(num_tokens), max_tokens=1))
    assert told(one, "before") == [0]
    return one


def test_whole_blocks_that_were_found_are_told_with_the_first_token_alone() -> None:
    one = with_cached(14)
    one.add(payload("a", [*prompt(14), 50, 51], max_tokens=3))
    assert told(one, "a") == [12, None, None]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    one = with_cached(12)
    one.add(payload("a", prompt(12), max_tokens=1))
    assert told(one, "a") == [8]


def test_choices_tell_it_once() -> None:
    one = with_cached(8)
    one.add(payload("a", [*prompt(8), 50], max_tokens=2, num_choices=3))
    assert told(one, "a") == [8, *[None] * 5]


def test_beams_tell_it_once_at_the_end() -> None:
    one = with_cached(8)
    one.add(payload("a", [*prompt(8), 50], max_tokens=1, num_choices=2, num_candidates=2, is_beam=True))
    plan = one.schedule(now=0.0)
    chunks = one.commit(plan, continued(plan, {1: [(10, -1.0), (11, -1.5), (12, -3.0)]}))
    assert [(chunk.choice, chunk.cached_tokens) for chunk in chunks] == [(0, 8), (1, None)]


@pytest.mark.parametrize(
    ("policy", "num_found_tokens", "num_moved_blocks"), [(AlwaysRecompute(), 16, 0), (SwapIfRoom(), 0, 4)]
)
def test_what_a_preempted_request_has_of_its_own_does_not_count(
    policy: PreemptionPolicy, num_found_tokens: int, num_moved_blocks: int
) -> None:
    """Of 7 blocks, a comes to want 3, and b, of whose prompt 3 tokens are computed a step, 5: it gives way with 4."""
    one = scheduler(num_blocks=7, step_tokens=4, policy=policy, lazy_swaps=False, num_host_blocks=5)
    teach_short_outputs(one)
    one.add(payload("a", prompt(3, first=20), max_tokens=9))
    one.add(payload("b", prompt(18, first=50), max_tokens=2))
    before = one.counts
    assert told(one, "b") == [0, None]
    since = one.counts - before
    assert since.num_preemptions == 1
    assert (since.first_cached_tokens, since.swapped.out_bytes) == (num_found_tokens, num_moved_blocks * 1024)


def test_an_image_tells_what_was_found_where_its_request_began() -> None:
    one = with_cached(8)
    request = payload("a", [*prompt(8), *prompt(20, first=50)], max_tokens=2)
    one.add(request)
    step(one)
    state = evict(one, "a").state
    other = scheduler(step_tokens=16)
    assert other.add(request, state) == []
    assert told(other, "a") == [8, None]


def test_a_client_that_has_tokens_is_not_told_of_a_further_attempt() -> None:
    one = with_cached(8)
    first = payload("a", [*prompt(8), 50], max_tokens=4)
    one.add(replace(first, attempt=1, outputs=[Output([7, 7])]))
    assert told(one, "a") == [None, None]


def test_a_further_attempt_tells_where_the_client_has_nothing() -> None:
    one = with_cached(8)
    one.add(replace(payload("a", [*prompt(8), 50], max_tokens=1), attempt=1))
    assert told(one, "a") == [8]


def test_what_host_memory_brings_back_counts() -> None:
    one = with_cached(8, num_blocks=8, num_host_blocks=16, keeps=True)
    one.add(payload("all blocks", prompt(32, first=50), max_tokens=1))
    while one.has_work:
        step(one)
    assert one.blocks.match([*prompt(8), 50]) == [], "nothing is left on the device"
    one.add(payload("a", [*prompt(8), 50], max_tokens=2))
    assert told(one, "a") == [8, None]
    assert one.counts.kept.host_tokens == 8
