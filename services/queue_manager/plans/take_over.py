"""A device that has room takes over what waits elsewhere, at once, and one that has nothing to do what runs elsewhere.

Plans move groups, but a plan comes late: until then a device would have room for requests that wait at others. So the
group that is due first of those that wait at the busiest other node goes to a node at which none waits and that has
room.

Where no request waits there is nothing to plan, and yet a fast device may stand idle beside a slow one that has minutes
to go: the last answers decide when everything is done, and those that run slowly break their promises. A group that
runs goes to the idle device with its KV if what its members have left, at the pace there, takes longer than at the pace
here by several times what the move takes::

    rest_tokens * (step_there(r) - step_here(k + n)) > NUM_MOVES * move_s

with r requests there, k that come here anyway, n in the group.

Nodes whose queues have changed are looked at, and all of them every `LOOK_S` while a request waits, or while a device
is idle and another runs the same model more slowly: batches become smaller, groups become few, and what outlives the
mean has ever more left, without a queue that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import islice
from math import inf, isinf
from typing import NamedTuple

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.queues.immediate_start import has_memory
from services.queue_manager.queues.node_phases import takes_group
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import is_full, promises
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.estimator.batching import batching
from shared.estimator.hand_over import MOVE_S, hand_over_cost
from shared.estimator.harm import MAX_LATE, late_by_batch

NUM_MOVES = 3.0  # a move has to gain so many times what it costs: what is left of an answer is a guess
SLOWER = 1.5  # steps there by those here: equal devices learn unlike costs, and would pass answers to and fro
LOOK_S = 0.1  # between two looks at idle devices
STUCK_S = 0.2  # some steps: who waits longer in a group that has begun would begin sooner elsewhere
MAX_RESTARTS = 3  # attempts of a request, after which it stays
MAX_TAKEN = 32  # requests that one device takes over at a time
MAX_DONORS = 8  # other devices that are looked at
MAX_LOOKED = 32  # groups of a queue that are looked at: those that wait


class _Pace(NamedTuple):
    """Seconds between two tokens of a request at a node, as many as run there."""

    pace_s: float
    node: str


class TakeOvers:
    """Owns `State.look_again_s`; every answer is computed from the state."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues) -> None:
        self._state = state
        self._queues = queues
        self._groups = groups

    @property
    def wake_at(self) -> float | None:
        """When idle devices are to be looked at again."""
        return None if isinf(self._state.look_again_s) else self._state.look_again_s

    def nodes_to_look_at(self, changed: Iterable[str], now: float) -> list[str]:
        """Those whose queues have ``changed``; when it is time, all."""
        state = self._state
        names = dict.fromkeys(changed)
        if now >= state.look_again_s:
            state.look_again_s = inf
            names |= dict.fromkeys(state.nodes)
        return list(names)

    def _look_again(self, now: float) -> None:
        self._state.look_again_s = min(self._state.look_again_s, now + LOOK_S)

    def move_waiting(self, names: Iterable[str], now: float) -> None:
        """To each of these nodes that has room, a group that waits elsewhere for its model."""
        if not self._state.waiting_at:
            return
        self._look_again(now)
        for name in names:
            node = self._state.nodes.get(name)
            group = self._waits_elsewhere(node, now) if node is not None else None
            if node is not None and group is not None:
                self._queues.move(group, node, now)

    def stuck(self, names: Iterable[str], now: float) -> list[Request]:
        """Requests of groups that have begun and wait on, for each of these nodes one that could begin there at once.

        A group is at one node, so such a member cannot go as it is: it is to be submitted again.
        """
        found: dict[str, Request] = {}
        for name in names if self._state.waiting_at else ():
            node = self._state.nodes.get(name)
            if node is None or not self.has_room(node, now):
                continue
            members = (one for other in self._donors_of(node) for one in self._waiting_members(other, node))
            able = (one for one in members if self._is_stuck(one, found, now))
            request = next(able, None)
            if request is not None:
                found[request.request_id] = request
        return list(found.values())

    def _waiting_members(self, other: Node, node: Node) -> Iterable[Request]:
        """Of groups that run at the other node, who has waited longest in each."""
        for group in self._waiting_groups(other):
            if group.running and not group.kv_at and takes_group(self._state, node, group):
                yield self._state.requests[next(iter(group.waiting))]

    def _is_stuck(self, request: Request, found: Mapping[str, Request], now: float) -> bool:
        is_moved = request.request_id in found or request.attempt >= MAX_RESTARTS
        return not is_moved and now >= request.arrival_s + STUCK_S and request.group not in self._state.hand_overs

    def has_room(self, node: Node, now: float) -> bool:
        """Whether, by all that is known, one more of its model could begin at this node at once without harm."""
        return self._room(node, now) is True

    def _room(self, node: Node, now: float) -> bool | None:
        """Whether one more could begin at this node at once without harm; None where none could at all.

        A node where nothing runs begins by itself.
        """
        if node.num_members != node.num_running or not node.model or node.known.is_loading or is_full(node):
            return None
        typical, promised = self._groups.typical(node.model, now), promises(self._state, node)
        if typical is None or isinf(promised.per_s):
            return None
        if not has_memory(node, typical, node.num_members, promised.known_tokens):
            return None
        work = batching(node.known, typical)
        return late_by_batch(work, promised.ends, node.num_running + 1) <= MAX_LATE

    def _donors_of(self, node: Node) -> list[Node]:
        """Other nodes at which requests for its model wait, the busiest first."""
        others = [self._state.nodes[name] for name in self._state.waiting_at if name in self._state.nodes]
        others = [one for one in others if one is not node and one.model == node.model and one.num_running]
        return sorted(others, key=lambda one: (-one.drain_s, one.node))[:MAX_DONORS]

    def _waits_elsewhere(self, node: Node, now: float) -> Group | None:
        """Of the groups that could begin at this node and wait at the busiest other one, the one that is due first.

        Where one more would do harm, that is no group of those that have time: it would wait here as it does there.
        """
        is_harmless = self._room(node, now)
        if is_harmless is None:
            return None
        for other in self._donors_of(node):
            able = [
                group
                for group in self._waiting_groups(other)
                if self._may_go(group, node) and (is_harmless or group.gid not in other.patient)
            ]
            if able:
                return min(able, key=lambda group: group.start_by_s)
        return None

    def _waiting_groups(self, node: Node) -> Iterable[Group]:
        """The first of its queue that have members who wait there: behind hundreds that run, maybe."""
        groups = (self._state.groups[gid] for gid in node.queue)
        return islice((group for group in groups if group.waiting), MAX_LOOKED)

    def _may_go(self, group: Group, node: Node) -> bool:
        """The node can serve it, and nothing of it is where it waits but its place."""
        is_able = group.model == node.model and takes_group(self._state, node, group)
        return is_able and not group.running and not group.kv_at and group.gid not in self._state.hand_overs

    def targets(self, names: Iterable[str], now: float) -> dict[str, str]:
        """By group that is to move, the one of these nodes that it goes to. O(nodes), once for each model."""
        found: dict[str, str] = {}
        slowest: dict[str, list[_Pace]] = {}
        for name in names:
            node = self._state.nodes.get(name)
            if node is None or not self._is_idle(node):
                continue
            if node.model not in slowest:
                slowest[node.model] = self._slowest(node.model, now)
            found |= dict.fromkeys(self._for(node, slowest[node.model], found, now), name)
        return found

    def _is_idle(self, node: Node) -> bool:
        if node.queue or not node.model or node.known.is_loading:
            return False
        waiting = (self._state.nodes[name].model for name in self._state.waiting_at if name in self._state.nodes)
        return node.model not in waiting and all(one.target != node.node for one in self._state.hand_overs.values())

    def _slowest(self, model: str, now: float) -> list[_Pace]:
        """Of the nodes that run requests of a model, those with the longest steps, longest first."""
        typical = self._groups.typical(model, now)
        if typical is None:
            return []
        paces = (
            _Pace(batching(other.known, typical).pace_at(other.num_running), other.node)
            for other in self._state.nodes.values()
            if other.model == model and other.num_running
        )
        return nlargest(MAX_DONORS, paces)

    def _for(self, node: Node, slowest: list[_Pace], taken: dict[str, str], now: float) -> list[str]:
        """Groups that end sooner at this node, which has nothing to do, than at one of the slowest."""
        typical = self._groups.typical(node.model, now)
        if typical is None:
            return []
        here = batching(node.known, typical)
        slower = [one for one in slowest if one.pace_s > SLOWER * here.pace_at(1)]
        if slower:
            self._look_again(now)
        for pace_s, name in slower:
            chosen: list[str] = []
            num_here = 0
            for gid in self._state.nodes[name].queue:
                group = self._state.groups[gid]
                num_more = num_here + group.num_running
                is_free = (
                    takes_group(self._state, node, group)
                    and group.running
                    and not group.waiting
                    and gid not in self._state.hand_overs
                    and gid not in taken
                )
                if not is_free or num_more > MAX_TAKEN:
                    continue
                gain_s = self._gain_s(group, pace_s - here.pace_at(num_more), now)
                if gain_s > NUM_MOVES * self._move_s(group, self._state.nodes[name], node, now):
                    chosen.append(gid)
                    num_here = num_more
            if chosen:
                return chosen
        return []

    def _gain_s(self, group: Group, faster_s: float, now: float) -> float:
        return self._groups.load(group, now).running_output_tokens / group.num_running * faster_s

    def _move_s(self, group: Group, other: Node, node: Node, now: float) -> float:
        """With its KV, or by computing that again: as it is asked for (`Evictions.hand_over`)."""
        num_tokens = self._groups.load(group, now).kv_tokens
        return MOVE_S + hand_over_cost(other.known, node.known, group.model, num_tokens, group.num_running).least_s
