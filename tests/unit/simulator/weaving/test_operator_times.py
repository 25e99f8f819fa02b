"""Times of operators follow from their own bytes and operations, at any size of a step."""

from __future__ import annotations

import pytest

from gpu_node.graph.cost import NumberBytes, program_costs
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.program import OperatorKind
from gpu_node.graph.step_shape import SequencePart, StepShape
from services.simulator.weaving.operator_times import DecodeStep, DeviceSpeed, OperatorTimes
from tests.unit.simulator.weaving.unit_speed import NUM_OPERATORS, ONE_LAYER, UNIT_SPEED

SPEED = DeviceSpeed(bytes_per_s=100.0, kv_bytes_per_s=50.0, flops_per_s=1_000.0, wire_bytes_per_s=20.0, launch_s=0.25)


def test_each_operator_takes_what_its_cost_says() -> None:
    program = offload(ONE_LAYER)
    contexts = [7, 30, 2, 11, 5]  # the last two are remote
    shape = StepShape(tuple(SequencePart(tokens - 1, 1) for tokens in contexts), num_draws=5, num_remote=2)
    expected = [
        0.25
        + max(
            (cost.weight_bytes + cost.buffer_bytes) / 100 + cost.kv_bytes / 50,
            cost.flops / 1_000,
            cost.wire_bytes / 20,
        )
        for cost in program_costs(program, shape, NumberBytes(2.0, 2.0, 2.0))
    ]
    times = OperatorTimes(program, SPEED)
    step = DecodeStep(3, 39, 2, 16)
    assert times.seconds(step) == pytest.approx(expected)
    assert times.ends_s(step)[-1] == pytest.approx(times.total_s(step)) == pytest.approx(sum(expected))


def test_attention_of_remote_sequences_by_hand() -> None:
    # two sequences with 16 tokens: keys and values of 2 x 4 numbers of two bytes; queries and answers of 2 x 8
    kv_bytes, buffer_bytes = 16 * 8 * 2, 2 * (8 + 8) * 2
    attention = OperatorTimes(ONE_LAYER, SPEED).one_s(OperatorKind.PAGED_ATTENTION, DecodeStep(2, 16))
    assert attention == pytest.approx(0.25 + buffer_bytes / 100 + kv_bytes / 50)


def test_a_poll_is_a_launch() -> None:
    times = OperatorTimes(insert_polls(ONE_LAYER), SPEED)
    assert times.one_s(OperatorKind.POLL, DecodeStep(9, 90)) == 0.25
    assert times.places(OperatorKind.POLL) == list(range(1, 2 * NUM_OPERATORS, 2))
    assert OperatorTimes(ONE_LAYER, UNIT_SPEED).total_s(DecodeStep(1, 1)) == NUM_OPERATORS
