"""When a receiver does what it is sent, by hand: each operator and each poll takes a second."""

from __future__ import annotations

from gpu_node.graph.passes.offload.polls import insert_polls
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.operator_times import OperatorTimes
from services.simulator.weaving.receiver_node import ReceiverNode
from tests.unit.simulator.weaving.unit_speed import NUM_OPERATORS, ONE_LAYER, UNIT_SPEED, nobody, sequence

HOST_S = 5.0


def receiver(*, is_polled: bool = True, num_steps: int = 2) -> ReceiverNode:
    """With a sequence that has so many steps to go."""
    times = OperatorTimes(insert_polls(ONE_LAYER) if is_polled else ONE_LAYER, UNIT_SPEED)
    books = DecodeBooks(num_blocks=10)
    if num_steps:
        books.waiting.append(sequence(20, num_steps + 1))
    return ReceiverNode(lambda: times, HOST_S, nobody(), books)


def test_a_task_waits_for_the_operator_that_runs_and_the_step_goes_on_behind_it() -> None:
    node = receiver()
    assert node.serve(3.5, 10.0) == 4.0, "a poll ends there"
    assert node.serve(20.0, 1.0) == 20.0, "6 s of work since: another poll ends"
    assert node.serve(21.5, 1.0) == 23.0, "half a second of the two until the next"
    node.advance(1000.0)
    # two steps of 2 s an operator; 12 s of the first went to tasks
    assert node.record.num_steps == 2
    assert node.record.steps_s == 2 * (2 * NUM_OPERATORS + HOST_S) + 12
    assert node.served_s == 12.0
    assert node.record.num_ended == 1


def test_without_polls_a_task_waits_for_the_whole_step() -> None:
    assert receiver(is_polled=False).serve(3.5, 1.0) == NUM_OPERATORS


def test_between_two_steps_a_task_is_served_at_once_and_costs_nothing_that_the_host_does_not_take() -> None:
    node = receiver()
    end_s = 2.0 * NUM_OPERATORS
    assert node.serve(end_s + 1, 2.0) == end_s + 1
    node.advance(end_s + HOST_S + 1)
    assert node.serve(end_s + HOST_S + 1, 1.0) == end_s + HOST_S + 2, "the second step began when its host was ready"
    node = receiver()
    node.serve(end_s + 1, HOST_S + 3)
    assert node.serve(end_s + HOST_S + 4.5, 1.0) == end_s + HOST_S + 6, "begun at + 4, behind the task"


def test_a_receiver_without_work_serves_at_once() -> None:
    node = receiver(num_steps=0)
    assert (node.serve(7.0, 1.0), node.serve(8.25, 1.0)) == (7.0, 8.25)
    assert node.record.num_steps == 0
