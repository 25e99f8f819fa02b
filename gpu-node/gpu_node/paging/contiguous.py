"""The baselines: a request gets one contiguous range for all it may need, before it starts, and keeps it to its end.

As Orca (OSDI'22) would do: batches are formed anew at every step, first come first served; a whole prompt is computed
in one step. How much is reserved is the scheme's. (PagedAttention, SOSP'23, §6.1.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add

from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.paging.buddy import BuddyAllocator, order_for
from gpu_node.paging.server import MAX_NUM_SEQS, OPT_13B_A100, Memory, SchemeStep
from gpu_node.paging.trace import TraceRequest
from gpu_node.paging.usage import SlotUsage, held_usage

Reserve = Callable[[TraceRequest, int], int]
"""Slots to ask for, from the request and the longest sequence that the memory must be ready for."""


def oracle(request: TraceRequest, max_tokens: int) -> int:
    """The true length, which is not known before the end: the best that contiguous allocation can do."""
    del max_tokens
    return request.num_slots


def pow2(request: TraceRequest, max_tokens: int) -> int:
    """The output's length up to the next power of two: a guess that is never too short, and at most twice too long."""
    return min(request.input_tokens + (1 << order_for(request.output_tokens)), max_tokens)


def maximum(request: TraceRequest, max_tokens: int) -> int:
    """The longest sequence there can be."""
    del request
    return max_tokens


SCHEMES: dict[str, Reserve] = {"Orca (Oracle)": oracle, "Orca (Pow2)": pow2, "Orca (Max)": maximum}


@dataclass(slots=True)
class _Running:
    request: TraceRequest
    address: int
    num_asked: int
    num_states: int = 0
    """Tokens whose keys and values are in memory."""


class ContiguousServer:
    """Requests in ranges of a buddy allocator."""

    num_preemptions = 0
    """No request ever has to give way: all that can be needed is reserved."""

    def __init__(self, name: str, reserve: Reserve, memory: Memory) -> None:
        self.name = name
        self._reserve = reserve
        self._max_tokens = memory.max_tokens
        self._buddy = BuddyAllocator(memory.num_slots)
        self._waiting: deque[TraceRequest] = deque()
        self._running: list[_Running] = []

    def add(self, request: TraceRequest) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def step(self, now_s: float) -> SchemeStep:
        """Start what fits, then compute one token of each running request, or its prompt."""
        del now_s
        self._admit()
        assert self._running, "a request that is alone has room"
        parts = []
        for number, running in enumerate(self._running):
            num_new = 1 if running.num_states else running.request.input_tokens
            parts.append(ScheduledSequence(number, (0,) * num_new, running.num_states, (), ()))
            running.num_states += num_new
        num_running, usage = len(self._running), self._usage()
        for running in self._running:
            if running.num_states == running.request.num_slots:
                self._buddy.free(running.address)
        self._running = [one for one in self._running if one.num_states < one.request.num_slots]
        plan = StepPlan(tuple(parts))
        return SchemeStep(
            duration_s=OPT_13B_A100.predict_s(plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens),
            num_running=num_running,
            num_waiting=len(self._waiting),
            usage=usage,
            num_finished=num_running - len(self._running),
        )

    def _admit(self) -> None:
        """In the order of arrival; one that does not fit holds up those behind it."""
        while self._waiting and len(self._running) < MAX_NUM_SEQS:
            num_asked = self._reserve(self._waiting[0], self._max_tokens)
            address = self._buddy.allocate(num_asked)
            if address is None:
                return
            self._running.append(_Running(self._waiting.popleft(), address, num_asked))

    def _usage(self) -> SlotUsage:
        held = (
            held_usage(one.num_states, one.request.num_slots, one.num_asked, self._buddy.size(one.address))
            for one in self._running
        )
        num_free = self._buddy.num_free_slots
        is_short = bool(self._waiting) and len(self._running) < MAX_NUM_SEQS
        return reduce(add, held, SlotUsage(stranded=num_free) if is_short else SlotUsage(headroom=num_free))
