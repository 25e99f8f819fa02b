"""What the schemes of allocation have in common: a request comes, a step is made, memory is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_node.paging.buddy import order_for
from gpu_node.paging.trace import TraceRequest
from gpu_node.paging.usage import SlotUsage
from shared.messages.nodes.step_cost import StepCost

MAX_NUM_SEQS = 256
"""Most requests in a batch, for all schemes alike. Memory ends sooner."""

OPT_13B_A100 = StepCost(
    step_s=26e9 / 1.55e12, token_s=26e9 / 156e12, context_token_s=0.0, attended_token_s=819_200 / 1.55e12
)
"""26 GB of weights, and for each row the 819,200 B of keys and values of every token before it, at 1.55 TB/s; 26 GFLOP
a token at half of 312 TFLOP/s.

It only says how long a step lasts, so what has arrived by the next one; no share or count of requests is made of it.
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """The KV memory that every scheme gets, and the longest sequence it must be ready for."""

    num_slots: int
    token_bytes: int
    max_tokens: int

    @property
    def least_slots(self) -> int:
        """Below this, contiguous allocation cannot serve one sequence of full length: its ranges are powers of two."""
        return 1 << order_for(self.max_tokens)


@dataclass(frozen=True, slots=True)
class SchemeStep:
    """One step, looked at while it computes: what it adds is in memory, what it ends is still there."""

    duration_s: float
    num_running: int
    num_waiting: int
    usage: SlotUsage
    num_finished: int
    """Requests that end with it."""


class SchemeServer(Protocol):
    """One scheme with its requests."""

    @property
    def name(self) -> str:
        """What the scheme is called in tables."""
        ...

    @property
    def num_preemptions(self) -> int:
        """How often a request had to give its memory up."""
        ...

    def add(self, request: TraceRequest) -> None:
        """A request arrives; it can run when it is alone."""
        ...

    def step(self, now_s: float) -> SchemeStep:
        """Run one step; there is a request that has not ended."""
        ...
