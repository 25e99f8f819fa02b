"""A step is planned while the one before it runs: what is scheduled on, what is not, what an end seen late drops."""

from __future__ import annotations

from gpu_node.engine.border.plan import DRAWN, StepResult
from gpu_node.engine.requests.chunk import OutputChunk
from tests.gpu_node.bookkeeping import EOS, STEP_S, payload, prompt, result, scheduler, shape, teach_short_outputs


def test_a_token_that_is_not_known_yet_is_scheduled_on() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=9))
    first = one.schedule(now=0.0)
    second = one.schedule(now=0.0)
    one.check()
    (part,) = second.sequences
    assert (part.token_ids, part.start, part.draws[0].position) == ((DRAWN,), 3, 1)
    assert one.commit(first, result(first)) == [OutputChunk("a", 0, 0, [7], cached_tokens=0)]
    third = one.schedule(now=0.0)
    assert one.commit(second, result(second, 8)) == [OutputChunk("a", 0, 1, [8])]
    assert one.commit(third, result(third, 9)) == [OutputChunk("a", 0, 2, [9])]
    (part,) = one.schedule(now=0.0).sequences
    assert (part.token_ids, part.start) == ((9,), 5)
    one.check()


def test_penalties_see_only_what_is_known() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=9, presence_penalty=1.0))
    plans = [one.schedule(now=0.0)]
    outputs = []
    for token in (7, 8, 9):
        plans.append(one.schedule(now=0.0))
        (part,) = plans[-1].sequences
        outputs.append((part.draws[0].position, list(part.draws[0].output_token_ids)))
        one.commit(plans.pop(0), StepResult({0: token}, STEP_S))
    assert outputs == [(1, []), (2, [7]), (3, [7, 8])]


def test_a_sequence_that_will_end_by_its_length_is_not_scheduled_on() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=2))
    one.add(payload("b", prompt(3, first=50), max_tokens=9))
    first = one.schedule(now=0.0)
    second = one.schedule(now=0.0)
    assert shape(second) == [(0, 3, 1, True), (1, 3, 1, True)]
    one.commit(first, result(first))
    third = one.schedule(now=0.0)
    assert shape(third) == [(1, 4, 1, True)]
    one.check()


def test_an_end_seen_late_drops_the_token_behind_it() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=9))
    first = one.schedule(now=0.0)
    second = one.schedule(now=0.0)
    assert one.commit(first, result(first, EOS)) == [
        OutputChunk("a", 0, 0, [EOS], "stop", is_last=True, cached_tokens=0)
    ]
    one.check()
    assert one.blocks.num_used_blocks == 0
    assert one.schedule(now=0.0).is_empty
    assert one.commit(second, result(second)) == []
    one.check()


def test_choices_fork_while_the_leader_is_in_flight() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), max_tokens=9, num_choices=2))
    first = one.schedule(now=0.0)
    second = one.schedule(now=0.0)
    one.check()
    assert [(part.sequence_id, part.token_ids, part.block_table) for part in second.sequences] == [
        (0, (DRAWN,), (1,)),
        (1, (DRAWN,), (0,)),
    ]
    assert len(second.copies) == 1
    one.commit(first, StepResult({0: 7, 1: EOS}, STEP_S))
    assert one.commit(second, result(second, 8)) == [OutputChunk("a", 0, 1, [8])]
    one.check()


def test_beams_wait_for_what_they_are_chosen_by() -> None:
    one = scheduler()
    one.add(payload("a", prompt(3), is_beam=True, num_candidates=2))
    assert not one.schedule(now=0.0).is_empty
    assert one.schedule(now=0.0).is_empty
    one.check()


def test_what_a_preempted_request_would_have_drawn_is_drawn_again() -> None:
    one = scheduler(num_blocks=5, step_tokens=16)
    teach_short_outputs(one)
    one.add(payload("a", prompt(7, first=20), max_tokens=8))
    one.add(payload("b", prompt(7, first=50), max_tokens=8))
    first, second = one.schedule(now=0.0), one.schedule(now=0.0)
    one.commit(first, result(first))
    third = one.schedule(now=0.0)  # a takes the last block, b has none and gives way
    one.check()
    assert (shape(third), one.num_preemptions) == ([(64, 8, 1, True)], 1)
    assert one.commit(second, result(second)) == [OutputChunk("a", 0, 1, [7])]
    assert one.commit(third, result(third)) == [OutputChunk("a", 0, 2, [7])]
    one.check()
    drawn = [1]
    while one.has_work:
        plan = one.schedule(now=0.0)
        drawn += [draw.position for part in plan.sequences for draw in part.draws if draw.sequence_id == 65]
        one.commit(plan, result(plan))
    assert drawn == [1, *range(1, 8)]


def test_an_abort_drops_what_is_in_flight_even_if_the_id_comes_back() -> None:
    one = scheduler()
    one.add(payload("a", prompt(5)))
    first, second = one.schedule(now=0.0), one.schedule(now=0.0)
    one.abort("a")
    one.add(payload("a", prompt(3, first=50)))
    assert one.commit(first, result(first)) == []
    third = one.schedule(now=0.0)
    assert shape(third) == [(1, 0, 3, True)]
    assert one.commit(second, result(second)) == []
    assert one.commit(third, result(third)) == [OutputChunk("a", 0, 0, [7], cached_tokens=0)]
    one.check()
