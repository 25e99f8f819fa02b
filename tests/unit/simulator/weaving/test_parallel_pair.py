"""Two models that share two devices, by hand: each operator takes a second."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.models.architectures.families import build_program
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.operator_times import DecodeStep, OperatorTimes
from services.simulator.weaving.parallel_pair import ParallelModel, parts_s, run
from services.simulator.weaving.sender_node import Link
from tests.gpu_node.graph.test_program_cost import config
from tests.unit.simulator.weaving.unit_speed import UNIT_SPEED, kinds, nobody, sequence

HALF = optimize(tensor_parallel(build_program(replace(config(num_layers=1), num_kv_heads=2)), 0, 2))
TIMES = OperatorTimes(HALF, UNIT_SPEED)
LINK = Link(0.25, inf)
HOST_S = 4.0


def model(num_steps: int) -> ParallelModel:
    books = DecodeBooks(10)
    if num_steps:
        books.waiting.append(sequence(20, num_steps + 1))
    return ParallelModel(TIMES, HOST_S, LINK, books, nobody())


def test_collectives_are_apart_from_what_the_devices_compute() -> None:
    order = kinds(HALF)
    assert (order.count("all_reduce"), order.count("all_gather")) == (2, 1)
    # two writes for each sum, one for the logits
    assert parts_s(TIMES, LINK, DecodeStep(1, 21)) == (3 + 5 * 0.25, len(order) - 3)


def test_a_model_alone_has_the_devices_to_itself() -> None:
    alone = model(2)
    run([alone, model(0)], 0.0, 500.0)
    assert alone.record.step_s == pytest.approx(HOST_S + len(HALF.operators) + 5 * 0.25)
    assert alone.record.num_ended == 1


def test_two_that_compute_at_one_time_go_at_half_the_pace() -> None:
    pair = [model(1), model(1)]
    run(pair, 0.0, 500.0)
    own_s, work_s = HOST_S + 3 + 5 * 0.25, len(HALF.operators) - 3
    assert [one.record.step_s for one in pair] == pytest.approx([own_s + 2 * work_s] * 2)
