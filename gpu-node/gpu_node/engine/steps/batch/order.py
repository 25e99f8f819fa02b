"""The order in which requests keep their blocks, and get them back (AdaptiveLLM, §3.4 and §3.5)."""

from __future__ import annotations

from typing import Protocol

from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.requests.sequence import EngineRequest
from shared.config.engines.engine import EngineOptions


class RequestOrder(Protocol):
    """A priority at a time. Under memory pressure the lowest gives way (Algorithm 1; the paper's comment says so, its
    ``pop()`` would not)."""

    is_line: bool
    """Requests wait in one line, so none need be compared: the preempted in front, then by arrival."""

    def priority(self, request: EngineRequest, now: float) -> float:
        """Higher for one that matters more, at ``now`` in seconds. Of equals, the first to come matters more."""
        ...


class FirstComeFirstServed:
    """The last to come gives way (PagedAttention, SOSP'23, §4.5): the oldest always advances."""

    is_line = True

    def priority(self, request: EngineRequest, now: float) -> float:
        """Earlier is higher."""
        del now
        return -float(request.order)


class Fair:
    """First the one that has waited longest for its length: (now - first enqueued) / length (AdaptiveLLM, §3.5).

    The wait of one that stands grows for ever while newcomers begin at 0, so each comes to be first in its time.
    """

    is_line = False

    def priority(self, request: EngineRequest, now: float) -> float:
        """Seconds a token; 0 for one that comes from a clock that is ahead."""
        return max(0.0, now - request.first_enqueued_s) / request.num_tokens


class LeastSlack:
    """First the one with the least slack until its promise is due (deadlines: AdaptiveLLM, §6, its future work)."""

    is_line = False

    def __init__(self, costs: KvCosts) -> None:
        self._costs = costs

    def priority(self, request: EngineRequest, now: float) -> float:
        """Minus the slack: what is left until the promise is due, less a step for each token that may still come.

        A promise that is broken already goes first of all: no request waits for ever.
        """
        left_s = request.due_s - now
        return request.num_left_tokens * self._costs.usual_step_s - left_s


def request_order(options: EngineOptions, costs: KvCosts) -> RequestOrder:
    """The order that the configuration names."""
    match options.order:
        case "fcfs":
            return FirstComeFirstServed()
        case "fair":
            return Fair()
        case "slack":
            return LeastSlack(costs)


def by_priority(order: RequestOrder, request: EngineRequest, now: float) -> tuple[float, int]:
    """What requests are compared by; higher is more."""
    return order.priority(request, now), -request.order
