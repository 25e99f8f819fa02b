"""What waits in a queue may start sooner at another node: plans come, and devices that have room take over.

A queue tells when its groups start if nothing is moved any more. Two things are known of the moves to come.

**Served elsewhere.** A group that stands behind a load of its model, while other nodes serve that model, is given to
them among their own. Which groups go when, is not known before; but these nodes are done with their queues and with all
such groups of a kind together after::

    end_s = (Σ drain of the nodes that serve the model + Σ drain of these groups) / nodes that serve it

and over this time the n waiting members of these groups are taken to begin evenly, in the order of their groups' rank,
the one of position i at (i + ½) / n of it.

**Work stealing.** A node that is done takes over what waits at others (`plans.take_over`, or the next plan), so N nodes
work off together what stands before a place in any queue. What a queue would come to at t without help starts at::

    start_s = (Σ min(t, D_i)) / N

where D_i is when node i could begin with other work of this model: its drain and, where it holds another model, the
load. Nodes with no less to do than the group's own count as t: they help no other. Two nodes with 4 and 20 s are both
done at 12. Nodes are taken to be equally fast.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, hypot

from services.queue_manager.queues.node_phases import takes_group, takes_phase
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.group_wait import PLAN_SHARE, GroupWait
from shared.estimator.estimator import swap_s
from shared.estimator.wait import NEVER, Wait
from shared.messages.nodes.nodes import Phase
from shared.messages.requests.request_kind import RequestKind


@dataclass(frozen=True, slots=True)
class EvenStarts:
    """When the waiting members of a group start at nodes that serve their model, in seconds from now."""

    first_s: float
    between_s: float
    end_s: float
    """When one that comes now starts, behind all of its kind."""

    def start_s(self, position: int) -> float:
        """Of the member behind so many others."""
        return self.first_s + position * self.between_s


@dataclass(frozen=True, slots=True)
class WorkStealing:
    """How a node's queue gets on, with the help of those that are done before."""

    done_s: Sequence[float]
    """When nodes could begin with this model, its own among them; ascending."""
    drain_s: float
    """Of the node."""

    def start_s(self, own_s: float) -> float:
        """When it starts that would start at ``own_s`` without help."""
        helpers_s = self.done_s[: bisect_left(self.done_s, min(own_s, self.drain_s))]
        num_nodes = len(self.done_s)
        return (fsum(helpers_s) + (num_nodes - len(helpers_s)) * own_s) / num_nodes if helpers_s else own_s


@dataclass(frozen=True, slots=True)
class SoonerWait:
    """What a group of a queue has to expect that may be served elsewhere before."""

    own: GroupWait
    """Where it stands, if nothing is moved."""
    even: EvenStarts | None
    stealing: WorkStealing | None

    def wait_at(self, position: int) -> Wait:
        """Until the first token of the member behind so many others."""
        place, prompt = self.place_and_prompt(position)
        return self.own.widened(place).then(prompt)

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Until it has a place, by the model's own spread, and from then on."""
        place, prompt = self.own.place_and_prompt(position)
        start_s = place.mean_s if self.even is None else min(place.mean_s, self.even.start_s(position))
        return _sooner(place, start_s if self.stealing is None else self.stealing.start_s(start_s)), prompt


class Elsewhere:
    """Of the queues as they are at one moment."""

    def __init__(self, even: Mapping[str, EvenStarts], stealing: Callable[[Group], WorkStealing | None]) -> None:
        """``even``: by group, those behind a load of a model that others serve."""
        self._even = even
        self._stealing = stealing

    def sooner(self, group: Group, own: GroupWait) -> GroupWait | SoonerWait:
        """What a group of a queue has to expect."""
        even, stealing = self._even.get(group.gid), self._stealing(group)
        return own if even is None and stealing is None else SoonerWait(own, even, stealing)

    def newcomer(self, group: Group, own: Wait) -> Wait:
        """Of one that comes now and joins the group, whose queue has this wait for it."""
        even, stealing = self._even.get(group.gid), self._stealing(group)
        start_s = own.mean_s if even is None else min(own.mean_s, even.end_s)
        return _sooner(own, start_s if stealing is None else stealing.start_s(start_s))


NOWHERE_ELSE = Elsewhere({}, lambda _: None)
"""All is served where it stands."""


def even_starts(state: State) -> dict[str, EvenStarts]:
    """By group, of those behind a load of a model that other nodes serve; one walk over all groups."""
    serving: dict[str, list[Node]] = {}
    for node in state.nodes.values():
        if node.model and not node.known.is_loading:
            serving.setdefault(node.model, []).append(node)
    starts: dict[str, EvenStarts] = {}
    for kind, groups in _behind_loads(state, serving).items():
        nodes = serving[kind.weights]
        end_s = (fsum(node.drain_s for node in nodes) + fsum(group.drain_s for group in groups)) / len(nodes)
        between_s = end_s / sum(group.num_waiting for group in groups)
        num_before = 0
        for group in sorted(groups, key=lambda group: (group.rank, group.start_by_s, group.gid)):
            starts[group.gid] = EvenStarts((num_before + 0.5) * between_s, between_s, end_s)
            num_before += group.num_waiting
    return starts


def _behind_loads(state: State, serving: Mapping[str, Sequence[Node]]) -> dict[RequestKind, list[Group]]:
    """Groups that wait where another model is loaded and which all nodes that serve theirs could take; by kind."""
    found: dict[RequestKind, list[Group]] = {}
    for group in state.groups.values():
        node = state.nodes.get(group.node)
        if node is None or not group.waiting or node.model == group.model:
            continue
        nodes = serving.get(group.model, ())
        if nodes and all(_takes(state, one, group) for one in nodes):
            found.setdefault(group.kind, []).append(group)
    return found


def work_stealing(state: State, now: float) -> Callable[[Group], WorkStealing | None]:
    """By group: None where it has no node that could serve it. O(nodes log nodes) for each model that is asked for."""

    @cache
    def done_s(model: str, needs: str, phase: Phase) -> Sequence[float]:
        return sorted(
            node.known.ready_in_s(now) + node.drain_s + swap_s(node.known, node.model, model)
            for node in state.nodes.values()
            if node.known.can_serve(model, needs) and takes_phase(state, node, model, needs, phase)
        )

    def of(group: Group) -> WorkStealing | None:
        node = state.nodes.get(group.node)
        if node is None or not node.known.can_serve(group.model, group.needs):
            return None
        return WorkStealing(done_s(group.model, group.needs, group.phase), node.drain_s)

    return of


def _takes(state: State, node: Node, group: Group) -> bool:
    return node.known.can_serve(group.model, group.needs) and takes_group(state, node, group)


def _sooner(own: Wait, start_s: float) -> Wait:
    """At ``start_s``, if a plan moves it as is expected; it may do otherwise. What never ends says nothing of when."""
    if own == NEVER or start_s >= own.mean_s:
        return own
    return Wait(start_s, hypot(own.std_s * start_s / own.mean_s, PLAN_SHARE * (own.mean_s - start_s)))
