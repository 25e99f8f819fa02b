"""Who will come and go ahead of those who wait, as far as that can be foreseen: by the order that queues have.

Two kinds of newcomers do. A group that still takes newcomers takes them where it stands, until it is full
(`groups`). And whoever is due earlier goes before whoever is due later (`virtual_queues`, and plans): one of a kind
that has to start within P goes ahead of a group that is due at D if it comes before D - P.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Group, Node, State
from shared.batching import Batching, batching
from shared.messages import GroupLoad, NodeState
from shared.overtaking import Stream


class Kind(NamedTuple):
    """What comes of one kind of promise, as a load of the node."""

    model: str
    slo_kind: str
    patience_s: float
    """From arrival until it has to start."""
    lasts_s: float
    share: float
    square_s: float


class Newcomers:
    """Owns nothing: it combines what is learnt of arrivals with the order of a queue."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def kinds(self, node: Node, known: NodeState, models: Iterable[str], now: float) -> list[Kind]:
        """What comes to the node, of these models."""
        found = []
        for model in dict.fromkeys(models):
            if model in known.broken_models:
                continue
            for load, flow in self._groups.expected_newcomers(model):
                work = batching(known, load)
                rate_per_s = flow.rate_per_s(now) * self._part(node, work, load)
                found.append(
                    Kind(
                        model,
                        flow.slo_kind,
                        flow.patience_s / flow.num,
                        flow.lasts_s(now),
                        rate_per_s * work.request_s,
                        rate_per_s * _square(work),
                    )
                )
        return found

    def _part(self, node: Node, work: Batching, load: GroupLoad) -> float:
        """Of the newcomers, those who come to this node: as much as it does of what all can do that hold the model."""
        by_device = {node.known.device: 1 / work.request_s}
        all_per_s = 0.0 if node.model == load.model else by_device[node.known.device]
        for other in self._state.nodes.values():
            if other.model == load.model:
                device = other.known.device
                if device not in by_device:
                    by_device[device] = 1 / batching(other.known, load).request_s
                all_per_s += by_device[device]
        return by_device[node.known.device] / all_per_s

    def streams(
        self, due_s: float, slo_kind: str, kinds: Iterable[Kind], joining: Iterable[tuple[Group, Stream]], now: float
    ) -> Iterator[Stream]:
        """Who goes ahead of one that is due then, behind these groups."""
        urgent = set()
        for kind in kinds:
            horizon_s = min(kind.lasts_s, due_s - now - kind.patience_s)
            if kind.slo_kind != slo_kind and horizon_s > 0:
                urgent.add((kind.model, kind.slo_kind))
                yield Stream(kind.share, kind.square_s, horizon_s)
        for group, stream in joining:
            if (group.model, group.slo_kind) not in urgent:
                yield stream

    def joining(self, group: Group, work: Batching, now: float) -> Stream | None:
        """Who will join a group, at its pace so far; None if it is closed."""
        room, pace_per_s = self._groups.joining(group, now)
        if room <= 0 or pace_per_s <= 0:
            return None
        return Stream(pace_per_s * work.request_s, pace_per_s * _square(work), room / pace_per_s)


def _square(work: Batching) -> float:
    """E[S²] of a request's device time."""
    return work.request_s**2 + work.std_request_s**2
