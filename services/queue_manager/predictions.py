"""When those who wait will start, and one who comes now would: the estimator, asked about the queues as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import hypot

import msgspec

from services.queue_manager.groups import RequestGroups
from services.queue_manager.newcomers import Newcomers
from services.queue_manager.residuals import Residuals
from services.queue_manager.state import Group, Node, State
from services.queue_manager.virtual_queues import VirtualQueues
from shared.estimator import MODEL_ERROR, GroupForecast, forecast, swap_s
from shared.messages import GroupLoad, Submit
from shared.overtaking import Stream, overtaken
from shared.wait import NEVER, NOW, Wait

LEISURE_S=3.0
FORECAST_GROUPS = 64  # of a queue are predicted one by one, which bounds the work; behind them, sums are good enough
SUM_ERROR = 2 * MODEL_ERROR  # relative, of these sums: what was learnt since is not in them


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a request that comes now has to expect, in seconds from now."""

    is_learnt: bool
    """The node's rate for the model is known; else the estimator goes by its priors."""
    first_token: Wait
    completion: Wait


Learn = Callable[[Wait], Wait]


@dataclass(frozen=True, slots=True)
class Outlook:
    """When the waiting members of a group start, newcomers who go ahead of them included."""

    forecast: GroupForecast | None
    """None behind the head of the queue, where it is known only how long all before it takes."""
    behind_s: float
    """Work before it that the forecast does not know of."""
    streams: Sequence[Stream]
    learn: Learn

    def wait_at(self, position: int) -> Wait:
        """Until the first token of the member behind so many others."""
        place, prompt = self.place_and_prompt(position)
        return self.learn(place).then(prompt)

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """In two parts, until it has a place and from then on, and before anything is learnt from earlier ones."""
        if self.forecast is None:
            return overtaken(_later(NOW, self.behind_s), self.streams), NOW
        place, prompt = self.forecast.place_and_prompt(position, self.streams)
        return _later(place, self.behind_s), prompt


class Predictions:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._newcomers = Newcomers(state, groups)
        self.residuals = Residuals(state.residuals, state.told)
        self._calibration = groups.calibration

    def of_node(self, node: Node, now: float) -> dict[str, GroupForecast]:
        """Forecasts of the groups at the head of a queue in which somebody waits, in order: if nobody came any more."""
        forecasts = forecast(self._calibration.expected(node.known), self._loads(node, len(node.queue), now))
        return {one.group: one for one in forecasts if one.num_waiting}

    def outlooks(self, node: Node, now: float) -> Iterator[tuple[Group, Outlook]]:
        """Of all groups of a queue in which somebody waits, in order."""
        known = self._calibration.expected(node.known)
        forecasts = self.of_node(node, now)
        groups = [self._state.groups[gid] for gid in node.queue]
        kinds = self._newcomers.kinds(node, known, [node.model, *(group.model for group in groups)], now)
        joining: list[tuple[Group, Stream]] = []
        ahead_s = 0.0
        for group in groups:
            one = forecasts.get(group.gid)
            if group.waiting:
                streams = self._newcomers.streams(group.start_by_s, group.slo_kind, kinds, joining, now)
                yield group, Outlook(one, 0.0 if one is not None else ahead_s, list(streams), self._learn(group))
            if one is not None:
                stream = self._newcomers.joining(group, one.work, now)
                joining += [(group, stream)] if stream is not None else []
            ahead_s += group.drain_s

    def watch(self, node: Node, now: float) -> None:
        """Note some predictions as they are made now, to see what comes of them: one a kind of promise and group."""
        seen = set()
        for group, outlook in reversed(list(self.outlooks(node, now))):
            key = group.model, group.slo_kind
            if key not in seen:
                seen.add(key)
                place, _ = outlook.place_and_prompt(group.num_waiting - 1)
                last = next(reversed(group.waiting))
                self.residuals.tell(last, group.model, group.slo_kind, place, now)

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
        is_learnt = any(rate.model == group.model for rate in node.known.rates)
        start, completion = self._at(node, index, group, newcomer, now)
        by_due = self._queues.index_by_due(node, group, index)
        if by_due < index - bool(group.node):
            soon, soon_completion = self._at(node, by_due, group, newcomer, now)
            plan = Wait(max(0.0, self._state.plan.last_asked_s + LEISURE_S - now), LEISURE_S / 2)
            if max(soon.mean_s, plan.mean_s) < start.mean_s:
                start = max(soon, plan, key=lambda wait: wait.mean_s)
        return Prospect(is_learnt, start, completion)

    def _at(self, node: Node, index: int, group: Group, newcomer: GroupLoad, now: float) -> tuple[Wait, Wait]:
        """At that place of the queue: until the first token, and until the last."""
        known = self._calibration.expected(node.known)
        loads = self._loads(node, index, now)
        if group.waiting and group.gid not in node.queue[:index]:
            loads.append(self._groups.load(group, now))
        loads.append(newcomer)
        forecasts = forecast(known, loads)
        works = {one.group: one.work for one in forecasts}
        ahead = [self._state.groups[gid] for gid in node.queue[:index] if gid != group.gid]
        kinds = self._newcomers.kinds(node, known, [node.model, *(one.model for one in ahead), group.model], now)
        joining = [
            (one, stream)
            for one in ahead
            if one.gid in works and (stream := self._newcomers.joining(one, works[one.gid], now)) is not None
        ]
        streams = list(self._newcomers.streams(group.start_by_s, group.slo_kind, kinds, joining, now))
        behind_s = sum(self._state.groups[gid].drain_s for gid in node.queue[FORECAST_GROUPS:index])
        one = forecasts[-1]
        start = Outlook(one, behind_s, streams, self._learn(group)).wait_at(0)
        return start, _later(one.completion, start.mean_s - one.start.mean_s if one.start != NEVER else 0.0)

    def _learn(self, group: Group) -> Learn:
        return partial(self.residuals.corrected, group.model, group.slo_kind)

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
