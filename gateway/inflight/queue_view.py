"""What the queue manager said last about the queue, and for how long it is believed. No I/O, no clock.

All times are seconds on the caller's clock.
"""

from __future__ import annotations

import math

from shared.messages.requests.requests import DEFAULT_TENANT, QueueLine, QueueStatus

# The queue manager speaks every second while requests wait, and else every 5 s to 7 s: with what runs, or with nothing.
# A gateway that has not heard it for this long, more than a standby takes to lead, knows nothing of the queue.
MAX_STATUS_AGE_S = 30.0


class QueueView:
    """The lines of the last `QueueStatus`, by model and kind of promise."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], QueueLine] = {}
        self._of_tenants: dict[str, list[QueueLine]] = {}
        self._heard_s: float | None = None
        self._unserved_since: dict[str, float] = {}

    def update(self, status: QueueStatus, now: float) -> None:
        """A newer status replaces the last one."""
        was_fresh = self.is_fresh(now)
        self._heard_s = now
        self._lines = {(line.model, line.slo): line for line in status.lines}
        self._of_tenants = {}
        for one in status.tenant_lines:
            self._of_tenants.setdefault(one.tenant, []).append(one.line)
        unserved = {line.model for line in status.lines if math.isinf(line.wait_s)}
        before = self._unserved_since if was_fresh else {}
        self._unserved_since = {model: before.get(model, now) for model in unserved}

    def lines(self, now: float) -> list[QueueLine]:
        """By model, then by kind of promise; none while nothing is known."""
        lines = self._lines  # replaced as a whole: metrics are read from another thread
        return [lines[key] for key in sorted(lines)] if self.is_fresh(now) else []

    def lines_of(self, tenant: str, now: float) -> list[QueueLine]:
        """The same for the requests of one tenant; all are the default tenant's where no other has any."""
        if not self._of_tenants:
            return self.lines(now) if tenant == DEFAULT_TENANT else []
        lines = self._of_tenants.get(tenant, []) if self.is_fresh(now) else []
        return sorted(lines, key=lambda line: (line.model, line.slo))

    def age_s(self, now: float) -> float | None:
        """Since the last status; None before the first."""
        return None if self._heard_s is None else now - self._heard_s

    def is_fresh(self, now: float) -> bool:
        """Whether what was said last still holds; not before the first status."""
        return self._heard_s is not None and now - self._heard_s <= MAX_STATUS_AGE_S

    def line(self, model: str, slo_kind: str, now: float) -> QueueLine | None:
        """How it stands for these requests; None while nothing is known."""
        return self._lines.get((model, slo_kind)) if self.is_fresh(now) else None

    def shortest_wait_s(self, now: float) -> float | None:
        """The shortest of all predicted waits: by then some request that is held now will have started."""
        return min((line.wait_s for line in self.lines(now)), default=None)

    def unserved_since(self, model: str, now: float) -> float | None:
        """Since when it has been said that no node can serve the model; None if one can, or nothing is known."""
        return self._unserved_since.get(model) if self.is_fresh(now) else None
