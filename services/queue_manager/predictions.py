"""When those who wait will start, and one who comes now would: the estimator, asked about the queues as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import hypot

import msgspec

from services.queue_manager.bounds import Bounds
from services.queue_manager.groups import RequestGroups
from services.queue_manager.headroom import SLOWEST
from services.queue_manager.newcomers import Joining, Newcomers
from services.queue_manager.state import Group, Node, State
from services.queue_manager.virtual_queues import VirtualQueues
from shared.batching import num_seqs
from shared.config import QueueOptions
from shared.estimator import MODEL_ERROR, GroupForecast, forecast, swap_s
from shared.messages import GroupLoad, NodeState, Submit
from shared.overtaking import Stream, overtaken
from shared.wait import NEVER, NOW, Wait

FORECAST_GROUPS = 64  # of a queue are predicted one by one, which bounds the work; behind them, sums are good enough
SUM_ERROR = 2 * MODEL_ERROR  # relative, of these sums: what was learnt since is not in them


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a request that comes now has to expect, in seconds from now."""

    is_learnt: bool
    """The node's rate for the model is known; else the estimator goes by its priors."""
    first_token: Wait
    completion: Wait


@dataclass(frozen=True, slots=True)
class Outlook:
    """When the waiting members of a group start, with the newcomers who will go ahead of them."""

    forecast: GroupForecast | None
    """If nobody came; None behind the head of the queue, where it is known only how long all before it takes."""
    behind_s: float
    """What the forecast does not know of the work before it."""
    streams: Sequence[Stream]
    """Of newcomers."""
    widened: Callable[[Wait], Wait]
    """What is learnt of the spread."""

    def wait_at(self, position: int) -> Wait:
        """Until the first token of the member behind so many others."""
        place, prompt = self.place_and_prompt(position)
        return self.widened(place).then(prompt)

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Until it has a place, by the model's own spread, and from then on."""
        if self.forecast is None:
            return overtaken(_later(NOW, self.behind_s), self.streams), NOW
        place, prompt = self.forecast.place_and_prompt(position, self.streams)
        return _later(place.give_or_take(MODEL_ERROR), self.behind_s), prompt.give_or_take(MODEL_ERROR)


class Predictions:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues, options: QueueOptions) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._newcomers = Newcomers(state, groups, options)
        self.bounds = Bounds(state.widths, state.open_bounds)
        self._calibration = groups.calibration

    def of_node(self, node: Node, now: float) -> dict[str, GroupForecast]:
        """Forecasts of the groups at the head of a queue in which somebody waits, in order: if nobody came any more."""
        forecasts = forecast(self._calibration.expected(node.known), self._loads(node, len(node.queue), now))
        return {one.group: one for one in forecasts if one.num_waiting}

    def outlooks(self, node: Node, now: float) -> Iterator[tuple[Group, Outlook]]:
        """Of all groups of a queue in which somebody waits, in order."""
        groups = [self._state.groups[gid] for gid in node.queue]
        loads = self._loads(node, len(node.queue), now)
        ways = {is_patient: self._serving(node, is_patient=is_patient) for is_patient in (False, bool(node.patient))}
        walks = {way: {one.group: one for one in forecast(known, loads)} for way, known in ways.items()}
        comes = {way: self._newcomers.kinds(node, known, groups, now) for way, known in ways.items()}
        joining: list[Joining] = []
        ahead_s = 0.0
        for group in groups:
            is_patient = group.gid in node.patient
            one = walks[is_patient].get(group.gid)
            if group.waiting:
                streams = self._newcomers.streams(group, comes[is_patient], joining, now)
                outlook = Outlook(one, 0.0 if one is not None else ahead_s, streams, self._widened(group))
                yield group, outlook
                if one is not None:
                    joining += self._newcomers.joining(group, one.work, outlook.place_and_prompt(0)[0].mean_s, now)
            ahead_s += group.drain_s

    def watch(self, node: Node, now: float) -> None:
        """See what comes of the forecasts for a node: of the last that waits of each model and kind of promise."""
        last = {(group.model, group.slo_kind): (group, outlook) for group, outlook in self.outlooks(node, now)}
        for group, outlook in last.values():
            place, _ = outlook.place_and_prompt(group.num_waiting - 1)
            self.bounds.watch(next(reversed(group.waiting)), group.model, group.slo_kind, place, now)

    def of_newcomer(self, message: Submit, now: float) -> Prospect | None:
        """For a request that comes now; None while there is no node that could serve its model."""
        newcomer = self._groups.newcomer(message, now)
        seat = self._queues.seat_of(newcomer, message.slo)
        group = self._groups.of_newcomer(message, now, seat.node if seat else "")
        placed = self._state.nodes.get(group.node)
        node = placed or seat or self._queues.home_of(group, newcomer) or self._nearest(group.model)
        if node is None:
            return None
        index = node.queue.index(group.gid) + 1 if group.node else self._queues.index_by_rule(node, group)
        known = self._serving(node, is_patient=self._is_patient(node, group, now))
        loads = self._loads(node, index, now)
        if group.waiting and not group.node:
            loads.append(self._groups.load(group, now))
        forecasts = forecast(known, [*loads, newcomer])
        one = forecasts[-1]
        behind_s = sum(self._state.groups[gid].drain_s for gid in node.queue[FORECAST_GROUPS:index])
        streams = self._ahead_of(group, node, known, index, forecasts, now)
        start = Outlook(one, behind_s, streams, self._widened(group)).wait_at(0)
        if one.begins_at_once:
            start = start.then(self._newcomers.prompts(node, known, now))
        later_s = start.mean_s - one.start.mean_s if one.start != NEVER else 0.0
        is_learnt = any(rate.model == group.model for rate in node.known.rates)
        return Prospect(is_learnt, start, _later(one.completion, later_s))

    def _ahead_of(
        self, group: Group, node: Node, known: NodeState, index: int, forecasts: Sequence[GroupForecast], now: float
    ) -> list[Stream]:
        """Newcomers who go ahead of one that has joined the group, behind so many others of a queue."""
        ahead = [self._state.groups[gid] for gid in node.queue[:index] if gid != group.gid]
        kinds = self._newcomers.kinds(node, known, [*ahead, group], now)
        works = {one.group: one.work for one in forecasts}
        seen = [other for other in ahead if other.gid in works]
        by = {one.group: one for one in forecasts}
        joining: list[Joining] = []
        for other in seen:
            if other.waiting:
                streams = self._newcomers.streams(other, kinds, joining, now)
                place, _ = by[other.gid].place_and_prompt(0, streams)
                joining += self._newcomers.joining(other, works[other.gid], place.mean_s, now)
        return self._newcomers.streams(group, kinds, joining, now)

    def _serving(self, node: Node, *, is_patient: bool) -> NodeState:
        """The node as it serves who is patient, in a batch that leaves headroom, or everybody else."""
        known = self._calibration.expected(node.known)
        if not is_patient or node.max_running is None:
            return known
        return msgspec.structs.replace(known, max_num_seqs=max(1, min(num_seqs(known), node.max_running)))

    def _is_patient(self, node: Node, group: Group, now: float) -> bool:
        """Whether a newcomer that would join the group has time (`headroom`)."""
        if node.max_running is None or group.waiting:
            return group.gid in node.patient
        queued = (self._state.groups[gid] for gid in node.queue[:FORECAST_GROUPS])
        ahead_s = sum(other.drain_s for other in queued if other.start_by_s <= group.start_by_s)
        return now + ahead_s / SLOWEST < group.start_by_s

    def _widened(self, group: Group) -> Callable[[Wait], Wait]:
        return partial(self.bounds.widened, group.model, group.slo_kind)

    def _nearest(self, model: str) -> Node | None:
        """The node that could serve a model first which nobody holds: its own work, then the swap."""
        able = (node for node in self._state.nodes.values() if model not in node.known.broken_models)
        times = {node.node: node.drain_s + swap_s(node.known, node.model, model) for node in able}
        return self._state.nodes[min(times, key=lambda name: (times[name], name))] if times else None

    def _loads(self, node: Node, end: int, now: float) -> list[GroupLoad]:
        """What is done before the place ``end`` of a queue, in the order in which it is done.

        What runs goes on wherever it stands, unless a plan has it give way: of a group behind waiting ones, the running
        part counts as if it stood in front.
        """
        running: list[GroupLoad] = []
        ahead: list[GroupLoad] = []
        is_behind = False
        for place, gid in enumerate(node.queue[:FORECAST_GROUPS]):
            load = self._groups.load(self._state.groups[gid], now)
            if (is_behind or place >= end) and load.num_running and gid not in node.yielding:
                running.append(msgspec.structs.replace(load, num_waiting=0))
                load = msgspec.structs.replace(load, num_running=0, running_output_tokens=0.0)
            if place < end and load.num_requests:
                ahead.append(load)
            is_behind = is_behind or load.num_waiting > 0
        return [*running, *ahead]


def _later(wait: Wait, seconds: float) -> Wait:
    """So much later, by sums that were made when the groups behind the head grew last."""
    return Wait(wait.mean_s + seconds, hypot(wait.std_s, SUM_ERROR * seconds)) if seconds else wait
