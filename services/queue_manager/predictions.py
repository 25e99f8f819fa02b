"""When those who wait will start, and one who comes now would: the estimator, asked about the queues as they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

import msgspec

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Group, Node, State
from services.queue_manager.virtual_queues import VirtualQueues
from shared.estimator import MODEL_ERROR, GroupForecast, forecast, swap_s
from shared.messages import GroupLoad, Submit
from shared.wait import NEVER, NOW, Wait

OVERTAKING_ROUNDS = 8  # in which a wait grows with those who come while it lasts
FORECAST_GROUPS = 64  # of a queue are predicted one by one, which bounds the work; behind them, sums are good enough
SUM_ERROR = 2 * MODEL_ERROR  # relative, of these sums: what was learnt since is not in them


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a request that comes now has to expect, in seconds from now."""

    is_learnt: bool
    """The node's rate for the model is known; else the estimator goes by its priors."""
    first_token: Wait
    completion: Wait


class Predictions:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._calibration = groups.calibration

    def of_node(self, node: Node, now: float) -> dict[str, GroupForecast]:
        """Forecasts of the groups at the head of a queue in which somebody waits, in order."""
        forecasts = forecast(self._calibration.expected(node.known), self._loads(node, len(node.queue), now))
        return {one.group: one for one in forecasts if one.num_waiting}

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
        loads = self._loads(node, index, now)
        if group.waiting and not group.node:
            loads.append(self._groups.load(group, now))
        loads.append(newcomer)
        one = forecast(self._calibration.expected(node.known), loads)[-1]
        behind_s = sum(self._state.groups[gid].drain_s for gid in node.queue[FORECAST_GROUPS:index])
        open_ahead = [self._state.groups[gid] for gid in node.queue[:index] if gid != group.gid]
        start = self._overtaken(one, [ahead for ahead in open_ahead if ahead.model == group.model], now)
        behind_s += start.mean_s - one.start.mean_s if one.start != NEVER else 0.0
        is_learnt = any(rate.model == group.model for rate in node.known.rates)
        return Prospect(is_learnt, _later(one.start, behind_s), _later(one.completion, behind_s))

    def _overtaken(self, one: GroupForecast, ahead: list[Group], now: float) -> Wait:
        """When it starts although groups before it still take newcomers: who joins while it waits goes first.

        The wait grows with those who come in it, so it is worked out in a few rounds, from below.
        """
        wait = one.start
        for _ in range(OVERTAKING_ROUNDS):
            wait = one.wait_at(sum(self._groups.num_joining(group, now, wait.mean_s) for group in ahead))
        return wait

    def beyond(self, seconds: float) -> Wait:
        """For a place behind the head, with so much work before it."""
        return _later(NOW, seconds)

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
