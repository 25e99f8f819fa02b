"""What stands behind a load of its model, while other nodes serve that model, starts sooner than its queue says.

Its own queue tells when it starts if no plan comes. Plans do come, and devices that have room take over: as the nodes
that serve the model get on, they are given such groups among their own, those of the lowest rank first. Which of them
go when, nobody knows before; but the nodes are done with their queues and with these groups together after::

    end_s = (Σ drain of the nodes that serve it + Σ drain of the groups behind a load) / nodes that serve it

and over this time the n members of these groups are taken to begin evenly, the one of position i at (i + ½) / n of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum, inf

from services.queue_manager.state.group import Group
from services.queue_manager.state.state import State
from services.queue_manager.waits.group_wait import PLAN_SHARE, GroupWait
from shared.estimator.wait import NOW, Wait
from shared.messages.request_kind import RequestKind


@dataclass(frozen=True, slots=True)
class EvenStarts:
    """When the waiting members of a group start, in seconds from now."""

    first_s: float
    between_s: float

    def start_s(self, position: int) -> float:
        """Of the member behind so many others."""
        return self.first_s + position * self.between_s


@dataclass(frozen=True, slots=True)
class SoonerWait:
    """What a group of a queue has to expect that may be served elsewhere before."""

    own: GroupWait
    """Where it stands."""
    starts: EvenStarts

    def wait_at(self, position: int) -> Wait:
        """Until the first token of the member behind so many others."""
        own = self.own.wait_at(position)
        return self.own.widened(self._elsewhere(own, position)) if self._is_sooner(own, position) else own

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Until it has a place, by the model's own spread, and from then on."""
        place, prompt = self.own.place_and_prompt(position)
        return (self._elsewhere(place, position), NOW) if self._is_sooner(place, position) else (place, prompt)

    def _is_sooner(self, own: Wait, position: int) -> bool:
        return self.starts.start_s(position) < own.mean_s

    def _elsewhere(self, own: Wait, position: int) -> Wait:
        start_s = self.starts.start_s(position)
        return Wait(start_s, PLAN_SHARE * (own.mean_s - start_s))


@dataclass(frozen=True, slots=True)
class ServedElsewhere:
    """The groups that stand behind a load of their model which others have loaded."""

    starts: Mapping[str, EvenStarts]
    """By group."""
    ends_s: Mapping[str, float]
    """By the same groups, when one that comes now behind all of its kind starts."""

    def newcomer(self, group: Group, own: Wait) -> Wait:
        """Of one that comes now and joins the group, whose queue has this wait for it."""
        end_s = self.ends_s.get(group.gid, inf)
        return own if own.mean_s <= end_s else Wait(end_s, PLAN_SHARE * (own.mean_s - end_s))

    def sooner(self, group: Group, own: GroupWait) -> GroupWait | SoonerWait:
        """What the group has to expect."""
        starts = self.starts.get(group.gid)
        return own if starts is None else SoonerWait(own, starts)


NOTHING_ELSEWHERE = ServedElsewhere({}, {})


def served_elsewhere(state: State) -> ServedElsewhere:
    """Of the queues as they are; one walk over the groups."""
    drains_s: dict[str, list[float]] = {}
    for node in state.nodes.values():
        if node.model and not node.known.is_loading:
            drains_s.setdefault(node.model, []).append(node.drain_s)
    starts: dict[str, EvenStarts] = {}
    ends_s: dict[str, float] = {}
    for kind, groups in _behind_loads(state, drains_s).items():
        serving_s = drains_s[kind.weights]
        end_s = (fsum(serving_s) + fsum(group.drain_s for group in groups)) / len(serving_s)
        between_s = end_s / sum(group.num_waiting for group in groups)
        num_before = 0
        for group in sorted(groups, key=lambda group: (group.rank, group.start_by_s, group.gid)):
            starts[group.gid] = EvenStarts((num_before + 0.5) * between_s, between_s)
            ends_s[group.gid] = end_s
            num_before += group.num_waiting
    return ServedElsewhere(starts, ends_s)


def _behind_loads(state: State, serving: Iterable[str]) -> dict[RequestKind, list[Group]]:
    """Groups that wait where another model is loaded, if theirs is one of these; by kind."""
    models = frozenset(serving)
    found: dict[RequestKind, list[Group]] = {}
    for group in state.groups.values():
        node = state.nodes.get(group.node)
        if node is not None and group.waiting and group.model in models and node.model != group.model:
            found.setdefault(group.kind, []).append(group)
    return found
