"""Looks at what runs now and then, so that what is learnt does not hang on the answers that have ended alone."""

from __future__ import annotations

from collections.abc import Iterator

from services.queue_manager.learnt.calibration import Calibration
from services.queue_manager.learnt.lengths import Lengths
from services.queue_manager.learnt.running import MAX_SINCE_S, RunningRequests
from services.queue_manager.learnt.token_rates import TokenRates
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.estimator.mixture import deviation
from shared.messages.nodes.placement import RequestShape

BUSY_S = 1.0  # a node at whose head a request has waited for so long has no place to spare


class Observer:
    """Owns `Node.kept`, and tells `Lengths` and `Calibration` what it sees."""

    def __init__(
        self, state: State, running: RunningRequests, lengths: Lengths, paces: TokenRates, calibration: Calibration
    ) -> None:
        self._state = state
        self._running = running
        self._lengths = lengths
        self._paces = paces
        self._calibration = calibration

    def look(self, model: str, now: float) -> None:
        """Walk over those of a model that run, if it is time to."""
        look = self._running.look(model, now)
        if look is None:
            return
        running = [self._state.requests[member] for member in look.members]
        drawn = [(one.slo.kind, one.tenant, self._paces.drawn_tokens(one, now)) for one in running]
        # who was evicted has not ended either: without them, long answers would be missing
        self._lengths.look(
            model, [*drawn, *((one.slo.kind, one.tenant, float(one.done_tokens)) for one in self._evicted(model))]
        )
        by_node: dict[str, list[Request]] = {}
        for request in running:
            by_node.setdefault(request.node, []).append(request)
        stocks = {
            name: sum(self._paces.drawn_tokens(one, now) - one.done_tokens for one in members)
            for name, members in by_node.items()
            if self._paces.learnt(model, name) is not None
        }
        for name, num_tokens in self._running.drawn(model, stocks).items():
            node, members = self._state.nodes.get(name), by_node[name]
            if node is None or node.model != model or look.since_s > MAX_SINCE_S or not self._is_busy(node, now):
                continue
            if node.max_running is not None and node.patient:  # its batch may have been kept small
                node.kept = node.kept.seen(model, node.max_running, len(members), look.since_s)
                continue
            num_running = sum(one.begins_s <= now for one in members)  # others have no place, but wait for prompts
            self._calibration.observe(node.known, self._like(model, members), num_running, num_tokens, look.since_s)

    def _evicted(self, model: str) -> Iterator[Request]:
        """Those who wait behind a part of their answers. O(groups), and the members of those that were evicted."""
        for group in self._state.groups.values():
            if group.root and group.model == model:
                yield from (self._state.requests[member] for member in group.waiting)

    def _is_busy(self, node: Node, now: float) -> bool:
        """Whether a request has waited there for a while, for the model that it holds."""
        group = self._state.groups.get(node.told[0][0]) if node.told else None
        if group is None or group.model != node.model or not group.waiting or node.known.is_loading:
            return False
        return now - self._state.requests[next(iter(group.waiting))].arrival_s >= BUSY_S

    def _like(self, model: str, members: list[Request]) -> RequestShape:
        """A typical one of these requests, before any of them began."""
        number = len(members)
        prompt = sum(one.prompt_tokens for one in members) / number
        square = sum(one.prompt_tokens**2 for one in members) / number
        limit = sum(one.max_tokens for one in members) / number
        output = self._lengths.of_model(model).rest(limit)
        return RequestShape(
            model=model,
            mean_prompt_tokens=prompt,
            std_prompt_tokens=deviation(prompt, square),
            mean_output_tokens=output.mean,
            std_output_tokens=deviation(*output),
        )
