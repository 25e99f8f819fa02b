"""Requests that were pulled and whose adapter is not in the engine: they begin once it is, or hear why it will not be.

Gateways and nodes see the configuration's file at different times, so a request may come before its adapter does.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.agent.decisions.intake.probation import Beginning
from gpu_node.agent.decisions.models.models import NodeModels
from gpu_node.agent.decisions.models.node_adapters import FILE_WAIT_S, refusal
from shared.messages.requests.requests import Attempt

MAX_AWAITING = 64
"""Requests that take no room from others meanwhile; with more, nothing is pulled."""


@dataclass(slots=True)
class _Awaiting:
    model: str
    adapter: str
    beginning: Beginning
    since_s: float | None = None
    """None until the time is known."""


class AwaitedAdapters:
    """Owns the requests that wait: from when one is pulled until its adapter is loaded, refused, or it is given up."""

    def __init__(self, models: NodeModels) -> None:
        self._models = models
        self._awaiting: dict[Attempt, _Awaiting] = {}
        self._late: set[Attempt] = set()

    def __len__(self) -> int:
        return len(self._awaiting)

    @property
    def attempts(self) -> list[Attempt]:
        """Those that wait."""
        return list(self._awaiting)

    @property
    def wants_load(self) -> bool:
        """Whether a request waits for nothing but that the engine loads an adapter of the current model."""
        adapters, current = self._models.adapters, self._models.current
        return any(
            one.model == current
            and adapters.is_known(one.model, one.adapter)
            and not adapters.is_loaded(one.model, one.adapter)
            and not adapters.problem(one.model, one.adapter)
            for one in self._awaiting.values()
        )

    def add(self, beginning: Beginning, model: str, adapter: str) -> None:
        """A request would begin, and its adapter is not there."""
        self._awaiting[beginning.attempt] = _Awaiting(model, adapter, beginning)

    def due(self, now: float) -> None:
        """Time has passed: a request whose adapter has been unknown for too long is refused."""
        for attempt, one in self._awaiting.items():
            if one.since_s is None:
                one.since_s = now
            if now - one.since_s >= FILE_WAIT_S and not self._models.adapters.is_known(one.model, one.adapter):
                self._late.add(attempt)
                self._models.adapters.miss(one.model, one.adapter)

    def forget(self, attempt: Attempt) -> None:
        """It is given up; one that does not wait is ignored."""
        self._awaiting.pop(attempt, None)
        self._late.discard(attempt)

    def take_ready(self) -> list[Beginning]:
        """Those whose adapter is there now, in the order in which they were pulled: they wait no more."""
        adapters = self._models.adapters
        ready = [
            (attempt, one)
            for attempt, one in self._awaiting.items()
            if one.model == self._models.current and adapters.serves(one.model, one.adapter)
        ]
        for attempt, _ in ready:
            self.forget(attempt)
        return [one.beginning for _, one in ready]

    def take_refused(self) -> list[tuple[Attempt, str]]:
        """Those whose adapter will not come, and what their clients hear: they wait no more."""
        refused: list[tuple[Attempt, str]] = []
        for attempt, one in list(self._awaiting.items()):
            is_broken = one.model in self._models.broken or self._models.adapters.problem(one.model, one.adapter)
            if is_broken or attempt in self._late:
                refused.append((attempt, refusal(one.model, one.adapter)))
                self.forget(attempt)
        return refused

    def take_strangers(self) -> list[Attempt]:
        """Those whose model is the current one no more: they wait no more, and not here."""
        gone = [attempt for attempt, one in self._awaiting.items() if one.model != self._models.current]
        for attempt in gone:
            self.forget(attempt)
        return gone
