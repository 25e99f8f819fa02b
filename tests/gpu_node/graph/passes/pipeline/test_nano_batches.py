"""A pipeline's lanes: any order that they permit gives the same numbers, and a hazard is found."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_node.graph.coverage import box
from gpu_node.graph.hazards import Access, conflicts
from gpu_node.graph.lanes import LaneQueue, LaneTurn, Placement, ProgramLane, check_queues, permitted_order, queues_of
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import OperatorKind, Program, accesses
from gpu_node.graph.share import DECODE, WHOLE, Part, Range, share_of
from gpu_node.models.architectures.families import build_program
from shared.config.pipelines.pipeline_file import PipelineError, PipelineOperator
from tests.gpu_node.batch_cuts import RandomCuts
from tests.gpu_node.family_programs import CONFIGS, config, logits_of, of_program, random_weights
from tests.gpu_node.random_pipelines import ONE_DEVICE, PROFILED, pipeline_of, random_pipeline
from tests.gpu_node.thread_group import run_ranks


def split(program: Program) -> Program:
    return split_operators(program, even_plan(program, 3))


BEFORE: list[tuple[Pass, ...]] = [(), (optimize,), (optimize, split, insert_polls), (optimize, RandomCuts(5))]


@pytest.mark.parametrize("name", CONFIGS)
@given(seed=st.integers(0, 1 << 16), before=st.sampled_from(BEFORE), names=st.sampled_from([ONE_DEVICE, PROFILED]))
@settings(max_examples=4, deadline=None)
def test_every_permitted_order_gives_the_same_bits(
    name: str, seed: int, before: tuple[Pass, ...], names: tuple[str, ...]
) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    program = plain
    for change in before:
        program = change(program)
    piped = nano_batches(program, random_pipeline(seed, names=names))
    weights = of_program(piped, stored)
    listed = logits_of(model, piped, weights)
    for order in range(2):
        assert logits_of(model, piped, weights, choose=random.Random(order).randrange).equal(listed)
    torch.testing.assert_close(listed, logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
@given(seed=st.integers(0, 1 << 16))
@settings(max_examples=2, deadline=None)
def test_ranks_in_orders_of_their_own_agree(name: str, seed: int) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    work = []
    for rank in range(2):
        program = optimize(tensor_parallel(plain, rank, 2))
        piped = nano_batches(program, random_pipeline(seed, num_devices=2))
        choose = random.Random(rank).randrange
        work.append(partial(logits_of, model, piped, of_program(piped, stored), choose=choose))
    both = run_ranks(work)
    assert both[0].equal(both[1])
    torch.testing.assert_close(both[0], logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)


# --- hazards ----------------------------------------------------------------------------------------------------------


def access(name: str, *, writes: bool = False, first: int = 0, columns: int = 8, part: str = "all") -> Access:
    return Access(name, box(first, columns, DECODE if part == "decode" else WHOLE), writes)


def test_what_is_read_follows_its_write_and_is_written_again_behind_that() -> None:
    operators = [
        [access("x", writes=True)],
        [access("x"), access("y", writes=True)],
        [access("x", writes=True)],
        [access("x"), access("y")],
    ]
    # the last reads what the third wrote, so it need not know of the first
    assert conflicts(operators) == [[], [0], [0, 1], [1, 2]]


def test_columns_and_rows_apart_do_not_depend() -> None:
    halves = [[access("x", writes=True, first=first, columns=4)] for first in (0, 4)]
    assert conflicts([*halves, [access("x", first=4, columns=4)]]) == [[], [], [1]]
    first, last = (share_of(Range(Part.ALL, *bounds)) for bounds in ((0, 0.5), (0.5, 1)))
    rows = [[Access("x", box(0, 8, share), True)] for share in (first, last)]
    assert conflicts([*rows, [Access("x", box(0, 8, last), False)]]) == [[], [], [1]]


def test_a_partial_write_leaves_the_one_before_it_to_be_waited_for() -> None:
    operators = [[access("x", writes=True)], [access("x", writes=True, part="decode")], [access("x")]]
    assert conflicts(operators) == [[], [0], [0, 1]]


COMPUTE, MEMORY = Placement(ProgramLane.COMPUTE, 0.5), Placement(ProgramLane.MEMORY, 0.5)


def test_an_operator_waits_for_no_more_than_it_must() -> None:
    # 2 needs 0 and 1, but 1 has waited for 0; 3 follows 1 in its lane
    queues = queues_of([0, 1, 2, 3], [COMPUTE, MEMORY, COMPUTE, MEMORY], [[], [0], [0, 1], [1, 2]])
    assert queues == (
        LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 0.5), LaneTurn(2, 0.5, (1,)))),
        LaneQueue(ProgramLane.MEMORY, (LaneTurn(1, 0.5, (0,)), LaneTurn(3, 0.5, (2,)))),
    )
    check_queues(queues, 4, [[], [0], [0, 1], [1, 2]])


def without_event(queues: tuple[LaneQueue, ...], number: int) -> tuple[LaneQueue, ...]:
    """The same but for one of the events."""
    left = number
    changed = []
    for queue in queues:
        turns = []
        for turn in queue.turns:
            waits = tuple(wait for place, wait in enumerate(turn.waits) if place + 1 != left + 1)
            left -= len(turn.waits)
            turns.append(replace(turn, waits=waits))
        changed.append(LaneQueue(queue.lane, tuple(turns)))
    return tuple(changed)


def num_events(queues: tuple[LaneQueue, ...]) -> int:
    return sum(len(turn.waits) for queue in queues for turn in queue.turns)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(3))
def test_every_missing_event_is_found(name: str, seed: int) -> None:
    piped = nano_batches(optimize(build_program(config(**CONFIGS[name]))), random_pipeline(seed))
    assert num_events(piped.lanes) > 5
    for number in range(num_events(piped.lanes)):
        lanes = without_event(piped.lanes, number)
        assert num_events(lanes) == num_events(piped.lanes) - 1
        with pytest.raises(AssertionError, match="may begin before"):
            replace(piped, lanes=lanes).check()


def whole(name: str, start_s: float = 0.0, lane: str = "compute") -> PipelineOperator:
    """An operator in one part."""
    return PipelineOperator(name, (0, 64), lane, 1.0, start_s, start_s + 0.1)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_swapped_pair_that_depends_is_found(name: str) -> None:
    program = optimize(build_program(config(**CONFIGS[name])))
    piped = nano_batches(program, pipeline_of([whole(part, number) for number, part in enumerate(ONE_DEVICE)], 64))
    (queue,) = piped.lanes
    hazards = conflicts(accesses(piped.operators, piped.buffers))
    num_found = 0
    for place, (first, second) in enumerate(pairwise(queue.turns)):
        turns = (*queue.turns[:place], second, first, *queue.turns[place + 2 :])
        swapped = replace(piped, lanes=(LaneQueue(queue.lane, turns),))
        if first.operator in hazards[second.operator]:
            with pytest.raises(AssertionError, match="may begin before"):
                swapped.check()
            num_found += 1
        else:
            swapped.check()
    assert num_found > len(queue.turns) // 2


def test_lanes_that_wait_for_each_other_and_operators_left_out_are_found() -> None:
    crossed = (
        LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 0.5, (1,)),)),
        LaneQueue(ProgramLane.MEMORY, (LaneTurn(1, 0.5, (0,)),)),
    )
    with pytest.raises(AssertionError, match="wait for each other"):
        check_queues(crossed, 2, [[], []])
    with pytest.raises(AssertionError, match="one turn"):
        check_queues((LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 0.5),)),), 2, [[], []])
    with pytest.raises(AssertionError, match="one turn"):
        check_queues((LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 0.5), LaneTurn(0, 0.5))),), 1, [[]])


def test_permitted_orders_are_all_interleavings_and_no_other() -> None:
    queues = (
        LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 0.5), LaneTurn(2, 0.5))),
        LaneQueue(ProgramLane.MEMORY, (LaneTurn(1, 0.5, (0,)),)),
    )
    found = {tuple(permitted_order(queues, random.Random(seed).randrange)) for seed in range(20)}
    assert found == {(0, 1, 2), (0, 2, 1)}


# --- what a pipeline says ---------------------------------------------------------------------------------------------

LLAMA = CONFIGS["llama3"]


def test_rows_are_counted_from_the_decodes_which_stand_last_in_a_step() -> None:
    parts = [whole(name) for name in ONE_DEVICE if name != "KQV"]
    parts += [PipelineOperator("KQV", rows, "compute", 1.0, 0.0, 0.1) for rows in ((0, 16), (16, 64))]
    piped = nano_batches(optimize(build_program(config(**LLAMA))), pipeline_of(parts, 64))
    products = [one for one in piped.operators if one.weights[:1] == ("layers.0.q_k_v",)]
    assert [str(one.share) for one in products] == ["all 3/4–1", "all 0–3/4"]


def test_up_and_down_of_the_feed_forward_network_may_be_apart() -> None:
    parts = [whole(name) for name in ONE_DEVICE if name != "UGD"]
    parts += [whole("UG", lane="compute"), whole("D", 1.0, lane="network")]
    piped = nano_batches(optimize(build_program(config(**LLAMA))), pipeline_of(parts, 64))
    (lane,) = (queue for queue in piped.lanes if queue.lane is ProgramLane.NETWORK)
    weights = [piped.operators[turn.operator].weights for turn in lane.turns]
    assert weights == [("layers.0.down",), ("layers.1.down",)]


def test_each_poll_comes_right_behind_its_operator_in_its_lane() -> None:
    piped = nano_batches(insert_polls(optimize(build_program(config(**LLAMA)))), random_pipeline(7))
    for queue in piped.lanes:
        kinds = [piped.operators[turn.operator].kind for turn in queue.turns]
        assert kinds[1::2] == [OperatorKind.POLL] * (len(kinds) // 2)
        pairs = zip(queue.turns[::2], queue.turns[1::2], strict=True)
        assert all(poll.operator == turn.operator + 1 for turn, poll in pairs)


def test_what_is_sent_and_gathered_is_in_the_lane_of_the_network_in_one_order() -> None:
    """Decodes attend in two parts, of which the second is the first to start; prompts in one, between these."""
    names = [whole(name) for name in ("KQV", "PfAttn", "O", "UGD")]
    names[1] = replace(names[1], start_s=2.0, end_s=3.0)
    decodes = [
        PipelineOperator("DecAttn", rows, "memory", 0.4, start_s, start_s + 1.5)
        for rows, start_s in (((0, 32), 2.5), ((32, 64), 1.5))
    ]
    program = optimize(build_program(config(**LLAMA)))
    piped = nano_batches(offload(program), pipeline_of([*names, *decodes], 64))
    network = next(queue for queue in piped.lanes if queue.lane is ProgramLane.NETWORK)
    told = [(piped.operators[turn.operator], turn.device_part) for turn in network.turns]
    assert {one.kind for one, _ in told} == {OperatorKind.SEND, OperatorKind.GATHER}
    assert {part for _, part in told} == {0.1}
    first = [f"{one.kind} {one.share}" for one, _ in told if one.layer == 0]
    parts = ["all 0–1/2 of decode of remote", "prefill of remote", "all 1/2–1 of decode of remote"]
    assert first == [*(f"send {part}" for part in parts), *(f"gather {part}" for part in parts)]


def test_a_program_whose_rows_run_ahead_has_no_lanes() -> None:
    program = offload(optimize(build_program(config(**LLAMA))), runs_ahead=True)
    with pytest.raises(AssertionError, match="parts run ahead of others in lanes"):
        nano_batches(program, pipeline_of([whole(name) for name in ONE_DEVICE], 64))


def test_what_no_program_can_do_is_refused() -> None:
    program = optimize(build_program(config(**LLAMA)))
    parts = [whole(name) for name in ONE_DEVICE]
    with pytest.raises(PipelineError, match=r"no executor runs Net"):
        nano_batches(program, pipeline_of([*parts, replace(parts[0], name="Net")], 64))
    with pytest.raises(PipelineError, match="no parts of KQV"):
        nano_batches(program, pipeline_of([one for one in parts if one.name != "KQV"], 64))
    sums = [*parts, replace(parts[0], name="O.AR"), replace(parts[0], name="UGD.AR")]
    with pytest.raises(PipelineError, match="all_reduce in the lane compute"):
        nano_batches(tensor_parallel(build_program(config(**LLAMA)), 0, 2), pipeline_of(sums, 64, 2))
