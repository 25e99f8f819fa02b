"""Plays a trace on a scheme, and sums up its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_node.paging.server import SchemeServer, SchemeStep
from gpu_node.paging.trace import TraceRequest
from gpu_node.paging.usage import SlotUsage

WARM_UP = 0.1
"""Part of the requests whose ends are awaited before anything is measured."""


@dataclass(frozen=True, slots=True)
class SchemeResult:
    """Averages are over the steps of the *steady* part: a tenth has ended already, and not all have started yet.

    So neither the filling nor the draining of the memory counts. A trace without such a part is averaged whole.
    """

    name: str
    num_steps: int
    """Of the whole run."""
    num_steady_steps: int
    duration_s: float
    """Predicted, of the whole run."""
    num_preemptions: int
    usage: SlotUsage
    """Sum over the averaged steps."""
    mean_running: float
    mean_waiting: float

    def to_json(self) -> dict[str, Any]:
        """Shares are parts of one: of what is allocated, and by kind of the whole memory."""
        return {
            "name": self.name,
            "token_states_of_allocated": self.usage.share_of_allocated,
            "memory": self.usage.shares(),
            "mean_running": self.mean_running,
            "mean_waiting": self.mean_waiting,
            "steps": self.num_steps,
            "steady_steps": self.num_steady_steps,
            "predicted_s": self.duration_s,
            "preemptions": self.num_preemptions,
        }


def play(requests: Sequence[TraceRequest], server: SchemeServer, advance: Callable[[int], None]) -> SchemeResult:
    """Run all of ``requests``, which are in the order of arrival; ``advance`` hears how many ended with each step."""
    arrivals = deque(requests)
    whole, steady = _Sum(), _Sum()
    num_finished = 0
    now_s = 0.0
    while num_finished < len(requests):
        if num_finished + len(arrivals) == len(requests):  # nothing to do until the next one comes
            now_s = max(now_s, arrivals[0].arrival_s)
        while arrivals and arrivals[0].arrival_s <= now_s:
            server.add(arrivals.popleft())
        is_warm = num_finished >= WARM_UP * len(requests)
        step = server.step(now_s)
        whole.add(step)
        if is_warm and (arrivals or step.num_waiting):
            steady.add(step)
        now_s += step.duration_s
        num_finished += step.num_finished
        advance(step.num_finished)
    averaged = steady if steady.num_steps else whole
    return SchemeResult(
        name=server.name,
        num_steps=whole.num_steps,
        num_steady_steps=steady.num_steps,
        duration_s=now_s,
        num_preemptions=server.num_preemptions,
        usage=averaged.usage,
        mean_running=averaged.num_running / averaged.num_steps,
        mean_waiting=averaged.num_waiting / averaged.num_steps,
    )


class _Sum:
    """Steps, added up."""

    def __init__(self) -> None:
        self.num_steps = self.num_running = self.num_waiting = 0
        self.usage = SlotUsage()

    def add(self, step: SchemeStep) -> None:
        self.num_steps += 1
        self.num_running += step.num_running
        self.num_waiting += step.num_waiting
        self.usage += step.usage
