"""Steps of a sender, by hand: each operator takes a second, and a receiver that is idle serves at once."""

from __future__ import annotations

from math import inf

from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.program import OperatorKind
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.operator_times import OperatorTimes
from services.simulator.weaving.receiver_node import ReceiverNode
from services.simulator.weaving.sender_node import Link, RemoteAttention, SenderNode
from tests.unit.simulator.weaving.unit_speed import ONE_LAYER, UNIT_SPEED, kinds, nobody, sequence

PLAIN, OFFLOADED = OperatorTimes(ONE_LAYER, UNIT_SPEED), OperatorTimes(offload(ONE_LAYER), UNIT_SPEED)
HOST_S = 3.0


def sender(service_s: float, ratio: float = 0.5) -> SenderNode:
    """With two sequences of one step each, of which one is remote; half a second each way."""
    receiver = ReceiverNode(lambda: PLAIN, 0.0, nobody(), DecodeBooks(10))
    remote = RemoteAttention(receiver, Link(0.5, inf), lambda step: service_s * step.num_remote, answer_bytes=16.0)
    books = DecodeBooks(10, num_remote_blocks=10, ratio=ratio)
    books.waiting.extend([sequence(20, 2, 1), sequence(20, 2, 2)])
    return SenderNode(PLAIN, OFFLOADED, HOST_S, books, nobody(), remote)


def test_an_answer_that_takes_longer_than_local_attention_is_waited_for() -> None:
    order = kinds(offload(ONE_LAYER))
    local_s = order.index("gather") - order.index("send") - 1
    assert local_s == 2, "local keys are written, and local attention"
    node = sender(service_s=4.0)
    node.run(0.1)
    # half a second, four of service, half a second: three more than the local rows take
    assert node.now == HOST_S + len(order) + 3
    assert (node.waits.num, node.waits.blocked_s, node.waits.late_s) == (1, 0.0, 3.0)
    assert (node.record.batch, node.record.remote_share, node.record.num_ended) == (2.0, 0.5, 2)
    assert node.record.tpot_s == node.now


def test_an_answer_that_is_there_is_not_waited_for() -> None:
    node = sender(service_s=0.5)
    node.run(0.1)
    assert node.now == HOST_S + len(OFFLOADED.operators)
    assert node.waits.late_s == 0.0


def test_without_remote_sequences_the_program_is_the_plain_one() -> None:
    node = sender(service_s=4.0, ratio=0.0)
    node.run(0.1)
    assert node.now == HOST_S + len(PLAIN.operators)
    assert OFFLOADED.places(OperatorKind.SEND)
    assert node.waits.num == 0
