"""What comes of a model, and what each kind of it takes of a node that prefills, decodes, or does both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shared.estimator.batching import Batch, batching, full_batch, rate_of
from shared.estimator.hand_over import PRIOR_NETWORK_BYTES_PER_S, hand_over_cost, network_s
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.requests.slo import MIN_START_S

PATIENCE_S = 120.0  # no client likes to wait: a promise that is further away counts as this
ALONE = Batch(1.0, 1.0, 0.0)


class KindOfLoad(NamedTuple):
    """Requests of one kind, as they come."""

    shape: RequestShape
    rate_per_s: float
    start_s: float
    """From the arrival until the first token is due."""
    token_s: float
    """Between two tokens, as promised; infinite where it is not."""
    end_s: float
    """From the arrival to the promised end; infinite where there is none."""


class PhaseLoad(NamedTuple):
    """What comes of a model, and what is there."""

    kinds: Sequence[KindOfLoad]
    waiting_prompt_tokens: float = 0.0
    rest_tokens: float = 0.0
    """That those who wait or run will draw."""


class KindWork(NamedTuple):
    """What requests of a kind take of a node."""

    kind: KindOfLoad
    prompt_steps: float
    """Steps that are full of its prompt."""
    prompt_rows_s: float
    std_prompt_s: float
    draws: float
    """Steps behind its first token."""
    step_s: float
    row_s: float
    batch: float
    move_s: float
    """Of all its KV, once its prompt is computed."""
    pause_s: float
    """Behind its first token, until its KV is where it goes on."""
    network_s: float

    @property
    def promised_s(self) -> float:
        """From the arrival to the end, or until its patience is over."""
        kind = self.kind
        promised_s = min(PATIENCE_S, kind.end_s, kind.start_s + (self.draws * kind.token_s if self.draws else 0.0))
        return max(MIN_START_S, promised_s)

    def prompt_s(self, num_running: float) -> float:
        """Of the device, among others, beside so many that draw."""
        return self.prompt_rows_s + self.prompt_steps * (self.step_s + num_running * self.row_s)

    def first_s(self, num_running: float) -> float:
        """Until its first token, once it is its turn."""
        return self.prompt_rows_s + max(1.0, self.prompt_steps) * (self.step_s + num_running * self.row_s)


def works_of(nodes: Sequence[NodeState], load: PhaseLoad, *, reads_ahead: bool = False) -> list[KindWork]:
    """Of each kind that comes, on the mean of these nodes; O(nodes x kinds).

    ``reads_ahead``: KV of long prompts goes ahead while the rest is computed.
    """
    kinds = [kind for kind in load.kinds if kind.rate_per_s > 0.0]
    return [_mean([_work(node, kind, reads_ahead=reads_ahead) for node in nodes]) for kind in kinds]


def _work(node: NodeState, kind: KindOfLoad, *, reads_ahead: bool) -> KindWork:
    # where all do both nothing moves, so a prior that is too slow would never be put right
    kv_bytes_per_s = node.kv_bytes_per_s or PRIOR_NETWORK_BYTES_PER_S
    plain, shape = replace(node, hands_over=[], kv_bytes_per_s=kv_bytes_per_s), kind.shape
    one = batching(plain, shape, among=ALONE)
    kept = replace(
        shape, mean_prompt_tokens=0.0, std_prompt_tokens=0.0, kept_tokens=shape.mean_prompt_tokens, found_tokens=0.0
    )
    kv_tokens = shape.mean_prompt_tokens
    move_s = hand_over_cost(plain, plain, shape.model, kv_tokens, 1).move_s
    pause_s = move_s
    if move_s and reads_ahead and node.reads_ahead and one.step_tokens and kv_tokens > one.step_tokens:
        # what the last step computes is left, and what the network has not taken meanwhile
        pause_s *= (
            max(one.step_tokens / kv_tokens, 1 - (one.prompt_rows_s + one.chunks * one.step_s) / move_s)
            if move_s
            else 0.0
        )
    return KindWork(
        kind=kind,
        prompt_steps=one.prompt_tokens / one.step_tokens if one.step_tokens else 1.0,
        prompt_rows_s=one.prompt_rows_s,
        std_prompt_s=one.std_prompt_s,
        draws=one.num_draws - 1,
        step_s=one.step_s,
        row_s=one.row_s,
        batch=full_batch(plain, kept).requests,
        move_s=move_s,
        pause_s=pause_s,
        network_s=network_s(node, node, kv_tokens * rate_of(node, shape.model).kv_token_bytes),
    )


def _mean(works: Sequence[KindWork]) -> KindWork:
    kind, *columns = zip(*works, strict=True)
    return KindWork(kind[0], *(math.fsum(column) / len(works) for column in columns))


def total_per_s(works: Sequence[KindWork]) -> float:
    """Requests of all kinds a second."""
    return math.fsum(work.kind.rate_per_s for work in works)


def by_rate(works: Sequence[KindWork], values: Sequence[float]) -> float:
    """Their mean, each as often as its kind comes."""
    return math.fsum(work.kind.rate_per_s * one for work, one in zip(works, values, strict=True)) / total_per_s(works)
