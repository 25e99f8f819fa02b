"""How many requests share a group, and what tells them apart: by policy (QLM, SoCC'24, Algorithm 1, and what it is
compared with).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from shared.config import QueueOptions
from shared.messages import NodeState

PRIOR_BATCH = 32.0  # requests that run together, assumed while no node has said what it can; `max_num_seqs`' default


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """What a group is."""

    num_batches: float
    """Most requests of a group, in average batches; at 0 each request is a group of its own."""
    is_fine: bool
    """Tenants, and clusters of lengths, do not mix; else only model and kind of promise count."""


def grouping_rule(options: QueueOptions) -> GroupingRule:
    """``qlm``: Algorithm 1 with its δ. ``shepherd``: fixed batches. ``edf``, ``fcfs``: no groups at all."""
    match options.policy:
        case "qlm":
            return GroupingRule(options.delta, is_fine=True)
        case "shepherd":
            return GroupingRule(1.0, is_fine=False)
        case "edf" | "fcfs":
            return GroupingRule(0.0, is_fine=False)


class BatchRoom(msgspec.Struct, array_like=True):
    """What bounds a batch of one model, mean of the nodes that have told."""

    max_num_seqs: float
    kv_tokens: float


class Batches:
    """Average batch of a model. Owns `State.batches`."""

    def __init__(self, rooms: dict[str, BatchRoom]) -> None:
        self._rooms = rooms

    def learn(self, nodes: Iterable[NodeState]) -> None:
        """Take over what all nodes now say of themselves; O(nodes × models)."""
        told: dict[str, list[tuple[int, int]]] = {}
        for node in nodes:
            for rate in node.rates:
                if node.max_num_seqs and rate.kv_tokens:
                    told.setdefault(rate.model, []).append((node.max_num_seqs, rate.kv_tokens))
        for model, rooms in told.items():
            num_seqs, kv_tokens = (sum(column) / len(rooms) for column in zip(*rooms, strict=True))
            self._rooms[model] = BatchRoom(num_seqs, kv_tokens)

    def average(self, model: str, context_tokens: float) -> float:
        """Requests that run together when each holds KV of ``context_tokens`` on average."""
        room = self._rooms.get(model)
        if room is None:
            return PRIOR_BATCH
        return min(room.max_num_seqs, room.kv_tokens / max(1.0, context_tokens))
