"""Virtual queues (QLM, SoCC'24 §4): an ordered list of groups a node. The scheduler orders them; new groups are put in
by rule, so that no group waits for a plan.
"""

from __future__ import annotations

from math import fsum

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.queues.node_phases import takes_phase
from services.queue_manager.queues.planned_order import is_before
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import PATIENCE_S, forget_promises, note_members, note_place
from services.queue_manager.state.state import State
from shared.config.services.queue import QueueOptions
from shared.estimator.batching import batching, residual_tokens
from shared.estimator.estimator import cold_s, drain_s, swap_s
from shared.messages.nodes.placement import GroupLoad
from shared.messages.requests.slo import Slo

MAX_OVERTAKEN = 128  # groups that a new one is compared with; what has to overtake more waits for the plan


class VirtualQueues:
    """Owns the queues in `State.nodes` and `Group.node`: every group stands in one queue, or in none while unplaced."""

    def __init__(self, state: State, groups: RequestGroups, options: QueueOptions) -> None:
        self._state = state
        self._groups = groups
        self._journal = groups.journal
        self._starts = ImmediateStarts(state)
        self._predicts = options.rules.predicts
        self._may_evict = options.uses("evict")
        self._begins_at_once = options.uses("immediate")
        self._may_overtake = options.uses("overtake")

    # --- by rule --------------------------------------------------------------------------------------------------

    def place(self, group: Group, now: float) -> Node | None:
        """Put a group without a place at the node that holds its model and ends it first; None if no node does."""
        node = self.home_of(group, self._groups.load(group, now), now)
        if node is not None:
            self.enter(group, node, now)
        return node

    def place_new(self, group: Group, now: float) -> None:
        """The same for a new group, which the plans do not know. The other policies order arrivals by plan only."""
        node = self.place(group, now)
        if node is None or not self._predicts:
            self._journal.call_plan()
        elif self._has_better_place(group, node) or self._may_go_elsewhere(node):
            self._journal.has_chance = True

    def _has_better_place(self, group: Group, node: Node) -> bool:
        """It stands behind a group that is due later, or right before one that runs and could give way to it."""
        groups, place = self._state.groups, node.queue.index(group.gid)
        if place > 0 and groups[node.queue[place - 1]].start_by_s > group.start_by_s:
            return True
        return place + 1 < len(node.queue) and bool(groups[node.queue[place + 1]].running)

    def _may_go_elsewhere(self, node: Node) -> bool:
        return len(node.queue) > 1 and any(not other.queue for other in self._state.nodes.values())

    def seat_of(
        self, newcomer: GroupLoad, slo: Slo, warm: WarmPrefix | None = None, *, but: str = "", only: str = ""
    ) -> Node | None:
        """The node at which a request that comes now is to begin at once, any ``but`` one, or one ``only``; None if it
        has to wait."""
        return self._starts.best(newcomer, slo, warm, but=but, only=only) if self._begins_at_once else None

    def home_of(self, group: Group, load: GroupLoad, now: float) -> Node | None:
        """Of the nodes that hold its model and take it as it is the one that ends an answer of it first, by the rule.

        Of equal ones the one with the least work, in seconds; then the first by name. The baselines know no answer's
        length, and go by work alone.
        """

        def order(node: Node) -> tuple[float, float, str]:
            free_s = self._free_in_s(node, now)
            return self._answer_in_s(node, group, load, free_s) if self._predicts else 0.0, free_s, node.node

        holders = (node for node in self._state.nodes.values() if node.model == group.model)
        able = (
            node
            for node in holders
            if group.needs not in node.known.lacks
            and takes_phase(self._state, node, group.model, group.needs, load.phase)
        )
        return min(able, key=order, default=None)

    def _answer_in_s(self, node: Node, group: Group, load: GroupLoad, free_s: float) -> float:
        """QLM's C = W + P + D (SoCC'24 §5) behind the groups that would be ahead, at the pace of a full batch."""
        work = batching(node.known, load)
        ahead_s = free_s - fsum([other.drain_s for other in self._overtaken(node, group)])
        in_batch_s = work.batch * residual_tokens(work.output_tokens, work.std_output_tokens) * work.token_s
        answer_s = work.first_token_at(work.batch) + (work.output_tokens - 1) * work.token_at(work.batch)
        return max(0.0, ahead_s - in_batch_s) + answer_s + cold_s(node.known, load)

    def _free_in_s(self, node: Node, now: float) -> float:
        """When the node could begin with more of its model: behind another one, that takes two swaps as well."""
        last = self._state.groups[node.queue[-1]].model if node.queue else node.model
        work_s = node.known.ready_in_s(now) + node.drain_s
        return work_s + swap_s(node.known, node.model, last) + swap_s(node.known, last, node.model)

    def enter(self, group: Group, node: Node, now: float) -> None:
        """Put a group without a place into this node's queue, where the rule has it."""
        self._insert(group, node, self.index_by_rule(node, group), now)

    def enter_seat(self, group: Group, node: Node, now: float) -> None:
        """Put a group without a place where it begins at once: before those that wait there for another model."""
        others = (place for place, gid in enumerate(node.queue) if self._waits_for_other(node, gid))
        self._insert(group, node, next(others, self.index_by_rule(node, group)), now)

    def _waits_for_other(self, node: Node, gid: str) -> bool:
        group = self._state.groups[gid]
        return bool(group.waiting) and group.model != node.model

    def enter_before(self, group: Group, other: Group, now: float) -> None:
        """Put a group without a place right before one that has a place."""
        node = self._state.nodes[other.node]
        self._insert(group, node, node.queue.index(other.gid), now)

    def enter_behind_head(self, group: Group, node: Node, now: float) -> None:
        """Put a group without a place behind the first one in which a request waits."""
        waiting = (i for i, gid in enumerate(node.queue) if self._state.groups[gid].num_waiting)
        self._insert(group, node, next(waiting, len(node.queue) - 1) + 1, now)

    def index_by_rule(self, node: Node, group: Group) -> int:
        """Where a new group goes: to the tail, but before waiting groups of its model that are due later.

        Groups of its own kind are overtaken by rank. Another model is not overtaken (that would cost swaps), nor is a
        group that runs or has run (that would cost evictions): those are for the plan to weigh. But one that is due
        later by `PATIENCE_S` has so much time that those of its members who wait need not begin before an urgent one.
        """
        return len(node.queue) - len(self._overtaken(node, group))

    def _overtaken(self, node: Node, group: Group) -> list[Group]:
        """Those at the tail that a new group goes before, last first."""
        found: list[Group] = []
        if not self._may_overtake:
            return found
        groups = self._state.groups
        for gid in node.queue[: -MAX_OVERTAKEN - 1 : -1]:
            other = groups[gid]
            if other.model != group.model or not is_before(group, other):
                break
            if (other.running or other.kv_at) and other.start_by_s - group.start_by_s < PATIENCE_S:
                break
            found.append(other)
        return found

    def _insert(self, group: Group, node: Node, index: int, now: float) -> None:
        assert not group.node, f"{group.gid} has a place already"
        node.queue.insert(index, group.gid)
        group.node = node.node
        note_place(node, group, 1)
        note_members(self._state, group, group.num_members, group.num_running)
        self._journal.note_queue(node.node)
        self._state.num_placed += 1
        self.weigh(group, now)

    def remove(self, group: Group) -> Node | None:
        """Take a group out of its queue; answers the node it stood at, if any."""
        if not group.node:
            return None
        node = self._state.nodes[group.node]
        node.queue.remove(group.gid)
        note_place(node, group, -1)
        note_members(self._state, group, -group.num_members, -group.num_running)
        self._journal.note_queue(node.node)
        if group.gid in node.yielding:
            node.yielding.remove(group.gid)
        node.drain_s = max(0.0, node.drain_s - group.drain_s) if node.queue else 0.0
        group.node, group.drain_s = "", 0.0
        self._state.num_placed -= 1
        return node

    def unplaced(self) -> list[Group]:
        """Groups that stand in no queue."""
        return [group for group in self._state.groups.values() if not group.node]

    def weigh(self, group: Group, now: float) -> None:
        """The group has new members, or another place: keep its node's sum of work up with it."""
        node = self._state.nodes.get(group.node)
        if node is None:
            return
        known = self._groups.calibration.expected_of(node.known, group.model)
        drain = drain_s(known, self._groups.load(group, now))
        node.drain_s = max(0.0, node.drain_s + drain - group.drain_s)
        group.drain_s = drain
        self._journal.note_work(node.node)

    def lighten(self, group: Group) -> None:
        """A member has left: its share of the work goes with it."""
        node = self._state.nodes.get(group.node)
        if node is not None:
            share_s = group.drain_s / (group.num_members + 1)
            node.drain_s = max(0.0, node.drain_s - share_s)
            group.drain_s -= share_s

    def weigh_all(self, node: Node, now: float) -> None:
        """The node is known better: all that stands in its queue takes another time."""
        forget_promises(node)
        self._journal.note_work(node.node)
        for gid in node.queue:
            self.weigh(self._state.groups[gid], now)

    # --- by plan --------------------------------------------------------------------------------------------------

    @property
    def may_evict(self) -> bool:
        """Whether a running group may stand behind one that waits."""
        return self._may_evict

    def holds_kv(self, group: Group) -> bool:
        """Whether moving the group takes a hand-over: members run, or their KV is kept at a node."""
        return bool(group.running) or group.kv_at in self._state.nodes

    def move(self, group: Group, node: Node, now: float) -> None:
        """Put a group at the end of a node's queue, from wherever it stands."""
        self.remove(group)
        self._insert(group, node, len(node.queue), now)

    def await_model(self, node: Node, model: str) -> None:
        """Have the node load a model once nothing is left there; until then no request begins there at once."""
        if model != node.awaits:
            node.awaits = model
            forget_promises(node)
            self._journal.note_queue(node.node)

    def order(self, node: Node, front: set[str], planned: list[str]) -> None:
        """Order a queue: those in front as they stand, then as planned, then the rest by rule."""
        known = {gid: place for place, gid in enumerate(planned)}
        for gid in node.queue:
            self._state.groups[gid].is_planned |= gid in known
        rest = [gid for gid in node.queue if gid not in front]
        node.queue = [gid for gid in node.queue if gid in front]
        node.queue += sorted((gid for gid in rest if gid in known), key=known.__getitem__)
        for gid in rest:
            if gid not in known:
                node.queue.insert(self.index_by_rule(node, self._state.groups[gid]), gid)
        forget_promises(node)
        self._journal.note_queue(node.node)
        # a sum kept up by steps drifts: begin anew
        node.drain_s = fsum(self._state.groups[gid].drain_s for gid in node.queue)
