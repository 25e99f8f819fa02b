"""What a batch costs the promises of those who are in it (QLM, SoCC'24 §5: C = W + P + D, D = O ε d).

A step takes the longer the more requests are in the batch, so one that joins slows all others down (ε d). Lengths of
answers (O) are log-normal with the mean and the deviation that were learnt, so the share of answers that a pace makes
late is known before any of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from shared.estimator.batching import Batching, batching
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape

MAX_LATE = 0.05  # share of a kind of promise in a batch that may be broken because requests with time are in it
GROWTH = 1.15  # sizes of batches that are looked at are so many times apart

PromisedEnd = tuple[float, float]
"""Seconds from the arrival to the promised end, and between two tokens; infinite where that was not promised."""


def late_share(work: Batching, time_s: float, token_s: float, pace_s: float) -> float:
    """Of answers with a token each ``pace_s``, those not done within ``time_s``, or whose tokens may not take so long.

    ``ln n`` is normal with variance ln(1 + σ² / μ²), and with the mean for which n has the mean μ.
    """
    if pace_s > token_s:
        return 1.0
    if time_s <= pace_s:
        return 1.0
    if math.isinf(time_s) or pace_s == 0.0:  # learnt costs of an empty step may be nothing
        return 0.0
    num_tokens = time_s / pace_s
    variance = math.log1p((work.std_output_tokens / work.output_tokens) ** 2)
    if variance == 0.0:
        return float(num_tokens < work.output_tokens)
    sigmas = (math.log(num_tokens / work.output_tokens) + variance / 2) / math.sqrt(variance)
    return math.erfc(sigmas / math.sqrt(2)) / 2


def late_by_batch(work: Batching, promised: Iterable[PromisedEnd], num_running: float) -> float:
    """Of one kind of requests with these promises, the share that is late because so many run together.

    Beside the batch at which the weights take half of a step: a smaller one costs more throughput than it gains time,
    and who is late there cannot be helped.
    """
    slow_s = work.pace_at(num_running)
    fast_s = min(slow_s, 2 * work.step_s * work.token_steps)
    first_s = work.chunks * work.step_s + work.prompt_rows_s
    return max(
        (
            late_share(work, end_s - first_s, token_s, slow_s) - late_share(work, end_s - first_s, token_s, fast_s)
            for end_s, token_s in promised
        ),
        default=0.0,
    )


def harmless_batch(work: Batching, promised: Iterable[PromisedEnd]) -> int | None:
    """The size of the batch from which on one more does harm; None where none does.

    Harm is that more than `MAX_LATE` of a kind are late because so many run together.
    """
    kinds = list(promised)
    sizes = list(_sizes(work.batch))
    # no share falls as steps get longer, so the first size that does harm is found by halves
    first = bisect_left(sizes, True, key=lambda size: late_by_batch(work, kinds, size + 1) > MAX_LATE)
    return sizes[first] if first < len(sizes) else None


def _sizes(batch: float) -> Iterator[int]:
    """Those that are looked at."""
    size = 1
    while size < batch:
        yield size
        size = next_size(size)


def next_size(size: int) -> int:
    """Of a batch, the size that is looked at behind this one."""
    return max(size + 1, int(size * GROWTH))


def paced(node: NodeState, shape: RequestShape, promised: Iterable[PromisedEnd]) -> NodeState:
    """The node with the batch that keeps these promises of such requests.

    A larger one does more in all, but a plan that counts with it has requests begin that end late, or make those late
    with which they run.
    """
    work = batching(node, shape)
    size = harmless_batch(work, promised)
    return node if size is None else msgspec.structs.replace(node, max_num_seqs=size)
