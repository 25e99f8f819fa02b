"""How many requests share a group, and what tells them apart: by policy (QLM, SoCC'24, Algorithm 1, and what it is
compared with).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from shared.config.config import QueueOptions
from shared.messages.placement import NodeState

OPEN_S = 5.0  # who joins a group that waits goes before those who came to other groups meanwhile: not for long
LEAST_BATCH = 4.0  # an average batch counts as this many at least: below it, more groups would only mean more plans
PRIOR_BATCH = 32  # requests that a node runs together, until one has told; `max_num_seqs`' default


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """What a group is."""

    num_batches: float
    """Most requests of a group, in average batches."""
    least_requests: int
    """It may have this many in any case."""
    is_fine: bool
    """Tenants, and clusters of lengths, do not mix; else only model and kind of promise count."""
    stays_movable: bool
    """A group that has begun takes none of those who have to wait: what runs binds it to its node."""
    open_s: float
    """One that waits takes newcomers for so long from when its first member came."""

    def max_requests(self, average_batch: float) -> int:
        """Most requests that a group may have had."""
        return max(self.least_requests, int(self.num_batches * average_batch))


def grouping_rule(options: QueueOptions) -> GroupingRule:
    """``qlm``: Algorithm 1 with its δ. ``shepherd``: fixed batches. ``edf``, ``fcfs``: no groups at all."""
    match options.policy:
        case "qlm":
            return GroupingRule(options.delta, 1, is_fine=True, stays_movable=True, open_s=OPEN_S)
        case "shepherd":
            return GroupingRule(0.0, PRIOR_BATCH, is_fine=False, stays_movable=False, open_s=math.inf)
        case "edf" | "fcfs":
            return GroupingRule(0.0, 1, is_fine=False, stays_movable=False, open_s=math.inf)


class Batch(msgspec.Struct, array_like=True):
    """What there is of one model, and where."""

    num_requests: int = 0
    """That run or wait."""
    num_nodes: int = 0
    """Nodes that hold the model."""
    max_num_seqs: int = PRIOR_BATCH
    """Most that one of them runs together."""


class Batches:
    """Average batch of a model: what a node that holds it has if all share alike, up to what fits.

    What could run together is no measure alone: where there is room for hundreds and work for ten, a group of hundreds
    would put onto one node what many should share. Owns `State.batches`.
    """

    def __init__(self, batches: dict[str, Batch]) -> None:
        self._batches = batches

    def learn(self, nodes: Iterable[NodeState]) -> None:
        """Take over which node holds which model; O(nodes)."""
        told: dict[str, list[int]] = {}
        for node in nodes:
            told.setdefault(node.model, []).append(node.max_num_seqs)
        for model in told.keys() | self._batches.keys():
            batch = self._batch(model)
            batch.num_nodes = len(told.get(model, ()))
            batch.max_num_seqs = max(told.get(model, ()), default=0) or PRIOR_BATCH

    def add(self, model: str) -> None:
        """There is one request more."""
        self._batch(model).num_requests += 1

    def remove(self, model: str) -> None:
        """There is one less."""
        self._batch(model).num_requests -= 1

    def average(self, model: str) -> float:
        """Requests of the model that run together on a node."""
        batch = self._batch(model)
        return min(max(LEAST_BATCH, batch.num_requests / max(1, batch.num_nodes)), batch.max_num_seqs)

    def _batch(self, model: str) -> Batch:
        return self._batches.setdefault(model, Batch())
