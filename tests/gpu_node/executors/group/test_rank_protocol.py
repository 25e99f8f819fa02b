"""A step comes to another device as it was planned."""

from __future__ import annotations

import socket
import threading

from gpu_node.engine.border.plan import DRAWN, MAX_STEP_DRAWS, BlockCopy, Draw, ScheduledSequence, StepPlan
from gpu_node.executors.group.rank_protocol import MAX_FRAME_BYTES, ComputeStep, ToRank, receive, send
from shared.messages.requests.payload import Sampling
from tests.gpu_node.masks import mask_of

WIDEST_MASK_BYTES = (256 << 10) // 8


def received(plan: StepPlan) -> StepPlan:
    """What comes out where another device takes it in."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=send, args=(ours, ComputeStep(plan)))  # it may be more than a socket holds
        writer.start()
        message: ToRank = receive(theirs, ToRank)  # type: ignore[arg-type]  # a union is no type
        writer.join()
    assert isinstance(message, ComputeStep)
    return message.plan


def test_masks_biases_and_tokens_so_far_are_the_same() -> None:
    sampling = Sampling(max_tokens=9, seed=3, presence_penalty=1.0, logit_bias=[(4, -1.5)])
    draws = (
        Draw(1, sampling, 2, 0, 5, [5, 6], [7, 8], mask_of([0, 9, 95])),
        Draw(2, sampling, 2, 1, None, [5, 6], [], bytes(range(256))),
        Draw(3, sampling, 2, 2, None, [], []),
    )
    parts = (ScheduledSequence(1, (5, DRAWN), 3, (0, 4), draws),)
    plan = StepPlan(parts, copies=(BlockCopy(1, 2),), model="m", generation=3)
    assert received(plan) == plan


def test_a_frame_holds_masks_for_all_draws_of_a_step() -> None:
    draws = [
        Draw(number, Sampling(max_tokens=9), 2, allowed=b"\xff" * WIDEST_MASK_BYTES) for number in range(MAX_STEP_DRAWS)
    ]
    parts = tuple(ScheduledSequence(draw.sequence_id, (5,), 3, (0,), (draw,)) for draw in draws)
    assert MAX_STEP_DRAWS * WIDEST_MASK_BYTES < MAX_FRAME_BYTES // 2 + (1 << 20)
    assert received(StepPlan(parts)).sequences[-1].draws[0].allowed == draws[-1].allowed
