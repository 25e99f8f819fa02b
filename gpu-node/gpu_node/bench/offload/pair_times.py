"""What the two ends of a link have measured between two looks, and what formula (3) of Weaver says of it."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.links import LinkTimes
from gpu_node.graph.passes.offload.poll_wait import expected_wait_s


@dataclass(frozen=True, slots=True)
class PairTimes:
    """Of both ends."""

    hot: LinkTimes
    cold: LinkTimes

    def since(self, before: PairTimes, elapsed_s: float) -> WaitTimes | None:
        """None where nothing was sent, or the receiver ran no step of its own.

        Equation 3 is about a receiver that is never idle: in the share of the time in which this one computes nothing,
        a task waits for no step.
        """
        num_tasks = self.hot.num_tasks - before.hot.num_tasks
        num_served = self.cold.num_served - before.cold.num_served
        num_steps = self.cold.num_steps - before.cold.num_steps
        if not (num_tasks and num_served and num_steps):
            return None
        whole = zip(self.cold.operator_s, before.cold.operator_s, self.cold.num_parts, strict=True)
        parts_s = [(now - then) / num_steps / parts for now, then, parts in whole for _ in range(parts)]
        service_s = (self.cold.service_s - before.cold.service_s) / num_served
        own_s = sum(self.cold.operator_s) - sum(before.cold.operator_s)
        busy = min(1.0, own_s / max(elapsed_s - service_s * num_served, own_s))
        slack_s = self.hot.local_s - service_s
        return WaitTimes(
            measured_s=(self.hot.waited_s - before.hot.waited_s) / num_tasks,
            formula_s=busy * expected_wait_s(parts_s, slack_s) + (1 - busy) * max(0.0, -slack_s),
            busy_share=busy,
            round_trip_s=(self.hot.away_s - before.hot.away_s) / num_tasks,
            local_s=self.hot.local_s,
            service_s=service_s,
            longest_part_s=max(parts_s),
            num_parts=len(parts_s),
        )


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """Means over the tasks of a stretch of time, in seconds."""

    measured_s: float
    """That a sender waits for an answer, beyond its own work."""
    formula_s: float
    """The same by equation 3, from the other measurements."""
    busy_share: float
    """Of the time in which the receiver did not serve, what it computed in."""
    round_trip_s: float
    """From asking to gathering."""
    local_s: float
    """K."""
    service_s: float
    """N."""
    longest_part_s: float
    """Of the receiver's operators."""
    num_parts: int
    """Of them all."""
