"""How many requests share a group: by policy (QLM, SoCC'24, Algorithm 1, and what it is compared with)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.config.services.policies import FIXED_BATCH
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeState

LEAST_BATCH = 4.0  # an average batch counts as this many at least: below it, more groups would only mean more plans
PRIOR_BATCH = FIXED_BATCH  # requests that a node runs together, until one has told; `max_num_seqs`' default


def most_requests(options: QueueOptions, average_batch: float) -> int:
    """Requests that a group may have had before it is closed: δ average batches with ``qlm`` (Algorithm 1)."""
    rules = options.rules
    num_batches = options.delta if rules.batches_per_group is None else rules.batches_per_group
    return max(rules.least_requests, int(num_batches * average_batch))


class ModelBatch(msgspec.Struct, array_like=True):
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

    def __init__(self, batches: dict[str, ModelBatch]) -> None:
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

    def _batch(self, model: str) -> ModelBatch:
        return self._batches.setdefault(model, ModelBatch())
