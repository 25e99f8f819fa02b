"""When requests that wait will start, and one that comes now would: the estimator, asked about the queues as they are.

What it is told of a node: its rates as they have proved (`calibration`), what stands in its queue, and the prompts that
it has yet to compute (`prompts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum

import msgspec

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.wait_intervals import WaitIntervals
from services.queue_manager.queues.batch_limit import SLOWEST, begins_at_once, slacks_s
from services.queue_manager.queues.planned_order import index_by_plan, planned_order
from services.queue_manager.queues.tenant_shares import in_turn, is_below
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.elsewhere import Elsewhere, SoonerWait, even_starts, work_stealing
from services.queue_manager.waits.group_wait import PLAN_SHARE, GroupWait, Served, Slack, later
from services.queue_manager.waits.newcomers import Joining, NewcomerKind, Newcomers
from services.queue_manager.waits.prompts import left
from shared.config.services.corrections import Correction
from shared.config.services.queue import QueueOptions
from shared.estimator.batching import num_seqs
from shared.estimator.estimator import GroupForecast, forecast, swap_s
from shared.estimator.wait import NEVER, Wait
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.requests.requests import Submit

FORECAST_GROUPS = 64  # of a queue are predicted one by one, which bounds the work; behind them, sums are good enough
NEWCOMER = ""  # group of the load of one that has not come yet


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a request that comes now has to expect, in seconds from now."""

    is_learnt: bool
    """The node's rates are known, for its model and for those before it; else the estimator goes by its priors."""
    first_token: Wait
    completion: Wait

    def unless(self, other: Prospect) -> Prospect:
        """The same, where it may come otherwise: how far they are apart is part of the spread."""
        if NEVER in (self.first_token, other.first_token):
            return self
        apart_s = PLAN_SHARE * abs(other.first_token.mean_s - self.first_token.mean_s)
        maybe = Wait(0.0, apart_s)
        is_learnt = self.is_learnt and other.is_learnt
        return Prospect(is_learnt, self.first_token.then(maybe), self.completion.then(maybe))


@dataclass(slots=True)
class _Way:
    """A queue as it is served in a batch of some size."""

    forecasts: dict[str, GroupForecast]
    """If none came, by group."""
    kinds: Sequence[NewcomerKind]
    """Kinds that come."""
    joining: list[Joining]
    """What will join the groups so far."""
    mixed: float
    """What work comes to in this batch, beside that of other groups, of what it would be alone in a full one."""


class Predictions:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues, options: QueueOptions) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._newcomers = Newcomers(state, groups, options)
        self._calibration = groups.calibration
        predicted = options.corrections if options.rules.predicts else frozenset[Correction]()  # else none overtakes
        self._has_planned_order = Correction.PLANNED_ORDER in predicted
        self._has_even_starts = Correction.SERVED_ELSEWHERE in predicted
        self._has_stealing = Correction.WORK_STEALING in predicted
        self._has_slack = Correction.SLACK in options.corrections
        is_learnt = Correction.LEARNT_BOUNDS in options.corrections
        self.bounds = WaitIntervals(state.widths, state.open_bounds, is_on=is_learnt)

    def of_node(self, node: Node, now: float) -> dict[str, GroupForecast]:
        """Forecasts of the groups with waiting requests at the head of a queue, in order: if none came any more."""
        forecasts = forecast(
            self._calibration.expected(node.known),
            self._loads(node, self._groups_at(node), len(node.queue), now),
            left(node, now),
            node.known.ready_in_s(now),
        )
        return {one.group: one for one in forecasts if one.num_waiting}

    def elsewhere(self, now: float) -> Elsewhere:
        """Which groups may start at other nodes than where they stand; one walk over all groups."""
        even = even_starts(self._state) if self._has_even_starts else {}
        return Elsewhere(even, work_stealing(self._state, now) if self._has_stealing else lambda _: None)

    def outlooks(self, node: Node, elsewhere: Elsewhere, now: float) -> Iterator[tuple[Group, GroupWait | SoonerWait]]:
        """Of all groups of a queue with waiting requests, in order."""
        queue = self._groups_at(node)
        groups, _ = in_turn(node, self._planned(node))
        ways = self._ways(node, groups, self._loads(node, groups, len(groups), now), now)
        found = {group.gid: outlook for group, outlook in self._along(node, groups, ways, now)}
        return ((group, elsewhere.sooner(group, found[group.gid])) for group in queue if group.gid in found)

    def _along(
        self, node: Node, groups: Sequence[Group], ways: Sequence[_Way], now: float
    ) -> Iterator[tuple[Group, GroupWait]]:
        """The outlooks of those of these groups with waiting requests; the ways learn what will join them."""
        slacks = slacks_s(self._groups_at(node), now) if len(ways) > 1 else {}
        ahead_s = 0.0
        for group in groups:
            is_seen = group.gid in ways[0].forecasts
            begin_s = 0.0
            if group.waiting:
                first_s = slacks.get(group.gid, 0.0)
                slack = Slack(first_s, group.between_dues_s, _pace(ways, group.gid))
                outlook = self._outlook(ways, group, group.gid, slack, 0.0 if is_seen else ahead_s, now)
                yield group, outlook
                begin_s = outlook.place_and_prompt(0)[0].mean_s
            if is_seen:
                for way in ways:
                    work = way.forecasts[group.gid].work
                    way.joining += self._newcomers.joining(group, work, begin_s, now)
            ahead_s += group.drain_s

    def _outlook(
        self, ways: Sequence[_Way], group: Group, gid: str, slack: Slack, behind_s: float, now: float
    ) -> GroupWait:
        """Of a group, or of one that has joined it, whose forecasts have this name; ``behind_s`` is work of others
        that the forecasts do not know, if it was done alone.
        """
        full, *small = (
            Served(
                way.forecasts.get(gid),
                self._newcomers.streams(group, way.kinds, way.joining, now),
                behind_s * way.mixed,
                fsum(kind.prompts_s for kind in way.kinds if kind.model == group.model),
            )
            for way in ways
        )
        return GroupWait(full, small[0] if small else None, slack, self._widened(group))

    def _ways(self, node: Node, groups: Sequence[Group], loads: list[GroupLoad], now: float) -> list[_Way]:
        """In the batch that takes as many as fit, and in the one that leaves headroom where there is a bound.

        The small batch has as many as have run beside such a bound of late (`kept_batch`): a wait outlives the bound.
        """
        full = self._calibration.expected(node.known)
        ways = [full]
        prompts, ready_s = left(node, now), node.known.ready_in_s(now)
        if node.max_running is not None and self._has_slack:
            num_kept = node.kept.expected(node.model, node.max_running)
            ways.append(msgspec.structs.replace(full, max_num_seqs=max(1, min(num_seqs(full), num_kept))))
        return [self._way(node, known, forecast(known, loads, prompts, ready_s), groups, now) for known in ways]

    def _way(
        self, node: Node, known: NodeState, forecasts: list[GroupForecast], groups: Sequence[Group], now: float
    ) -> _Way:
        by_group = {one.group: one for one in forecasts}
        head = [group for group in groups if group.gid in by_group and group.waiting and not group.running]
        alone_s = sum(group.drain_s for group in head)
        together_s = sum(group.num_waiting * by_group[group.gid].work.request_s for group in head)
        kinds = self._newcomers.kinds(node, known, groups, now)
        return _Way(by_group, kinds, [], together_s / alone_s if alone_s else 1.0)

    def watch(self, node: Node, elsewhere: Elsewhere, now: float) -> None:
        """See what comes of the forecasts for a node: of the last that waits of each model and kind of promise."""
        last = {
            (group.model, group.slo_kind): (group, outlook) for group, outlook in self.outlooks(node, elsewhere, now)
        }
        for group, outlook in last.values():
            place, _ = outlook.place_and_prompt(group.num_waiting - 1)
            self.bounds.watch(next(reversed(group.waiting)), group.model, group.slo_kind, place, now)

    def of_newcomer(self, message: Submit, now: float) -> Prospect | None:
        """For a request that comes now; None while there is no node that could serve its model."""
        newcomer = self._groups.newcomer(message, now)
        seat = self._queues.seat_of(newcomer, message.slo)
        group = self._groups.of_newcomer(message, now, seat.node if seat else "")
        placed = self._state.nodes.get(group.node)
        node = placed or seat or self._queues.home_of(group, newcomer, now) or self._nearest(group.model, now)
        if node is None:
            return None
        if is_below(node, message.tenant, group.model):
            return self._of_favoured(node, group, newcomer, message, now)
        queue, order = self._groups_at(node), self._planned(node)
        index = queue.index(group) + 1 if group.node else self._queues.index_by_rule(node, group)
        place = index
        if self._has_planned_order:
            place = order.index(group) + 1 if group.node else len(order)
            place = index_by_plan(node.model, order, group, place, may_evict=self._queues.may_evict)
        due_s = message.slo.start_by_s(now)
        prospect = self._at(node, order, place, group, newcomer, due_s, now)
        if place == index and all(one is other for one, other in zip(order[:place], queue, strict=False)):
            return prospect
        return prospect.unless(self._at(node, queue, index, group, newcomer, due_s, now))

    def _of_favoured(self, node: Node, group: Group, newcomer: GroupLoad, message: Submit, now: float) -> Prospect:
        """For one of a tenant below its share: only those favoured like it are ahead."""
        order, num_first = in_turn(node, self._groups_at(node), message.tenant)
        place = order.index(group) + 1 if group in order[:num_first] else num_first
        return self._at(node, order, place, group, newcomer, message.slo.start_by_s(now), now)

    def _at(
        self,
        node: Node,
        queue: Sequence[Group],
        index: int,
        group: Group,
        newcomer: GroupLoad,
        due_s: float,
        now: float,
    ) -> Prospect:
        """Of one that has joined the group, behind so many others of the node's queue in some order."""
        ahead = queue[:index]
        loads = self._loads(node, queue, index, now)
        if group.waiting and not any(one is group for one in ahead):
            load = self._groups.load(group, now)
            loads.append(msgspec.structs.replace(load, num_running=0, running_output_tokens=0.0))
        outlook = self._behind(node, ahead, group, [*loads, newcomer], due_s, now)
        one = outlook.served.forecast
        assert one is not None, "its own load is the last"
        start = outlook.wait_at(0)
        later_s = start.mean_s - one.start.mean_s if one.start != NEVER else 0.0
        is_learnt = {load.model for load in [*loads, newcomer]} <= {rate.model for rate in node.known.rates}
        return Prospect(is_learnt, start, later(one.completion, later_s))

    def _behind(
        self, node: Node, ahead: Sequence[Group], group: Group, loads: list[GroupLoad], due_s: float, now: float
    ) -> GroupWait:
        """Of one that has joined the group, behind these of a queue; its load is the last of these loads."""
        others = [one for one in ahead if one is not group]
        ways = self._ways(node, [*others, group], loads, now)
        for _ in self._along(node, others, ways, now):
            pass  # they are only to say what will join them
        slack_s = 0.0
        if len(ways) > 1 and not begins_at_once(group):
            due_before = [one for one in self._groups_at(node) if one.start_by_s <= group.start_by_s]
            slack_s = due_s - now - sum(one.drain_s for one in due_before) / SLOWEST
        behind_s = sum(one.drain_s for one in ahead[FORECAST_GROUPS:])
        return self._outlook(ways, group, NEWCOMER, Slack(slack_s, 0.0, _pace(ways, NEWCOMER)), behind_s, now)

    def _planned(self, node: Node) -> list[Group]:
        """A queue in the order that the next plan can be expected to bring; other policies overtake none."""
        queue = self._groups_at(node)
        if not self._has_planned_order:
            return queue
        return planned_order(node.model, queue, may_evict=self._queues.may_evict)

    def _groups_at(self, node: Node) -> list[Group]:
        return [self._state.groups[gid] for gid in node.queue]

    def _widened(self, group: Group) -> Callable[[Wait], Wait]:
        return partial(self.bounds.widened, group.model, group.slo_kind)

    def _nearest(self, model: str, now: float) -> Node | None:
        """The node that could serve a model first which none holds: its own work, then the swap."""

        def order(node: Node) -> tuple[float, str]:
            free_s = node.known.ready_in_s(now) + node.drain_s
            return free_s + swap_s(node.known, node.model, model), node.node

        able = (node for node in self._state.nodes.values() if model not in node.known.broken_models)
        return min(able, key=order, default=None)

    def _loads(self, node: Node, queue: Sequence[Group], end: int, now: float) -> list[GroupLoad]:
        """What is done before the place ``end`` of a node's queue, in the order in which it is done.

        What runs goes on wherever it stands, unless its node was told that it gives way: of a group behind waiting
        ones, the running part counts as if it stood in front.
        """
        running: list[GroupLoad] = []
        ahead: list[GroupLoad] = []
        is_behind = False
        for place, group in enumerate(queue[:FORECAST_GROUPS]):
            load = self._groups.load(group, now)
            if (is_behind or place >= end) and load.num_running and group.gid not in node.told_yielding:
                running.append(msgspec.structs.replace(load, num_waiting=0))
                load = msgspec.structs.replace(load, num_running=0, running_output_tokens=0.0)
            if place < end and load.num_requests:
                ahead.append(load)
            is_behind = is_behind or load.num_waiting > 0
        return [*running, *ahead]


def _pace(ways: Sequence[_Way], gid: str) -> float:
    """Throughput of the batch that leaves headroom, of a full one's; behind the head of the queue, as at its end."""
    full, small = ways[0].forecasts, ways[-1].forecasts
    if not full:
        return 1.0
    key = gid if gid in full else next(reversed(full))
    return min(1.0, full[key].work.request_s / small[key].work.request_s)
