"""What gateways and nodes have, said again when Redis came back without the end of its log, or a stream is gone.

What is not listed is over, so an inventory is complete for its span of request ids. It is told in parts of
MAX_INVENTORY_REQUESTS, each of which stands for itself: none waits for another, and one that is lost does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shared.messages.message import Message
from shared.messages.requests.requests import Attempt

MAX_INVENTORY_REQUESTS = 1_024  # in a part: about 60 kB; a gateway or a node has a few thousand at most


class NodeInventory(Message, frozen=True, kw_only=True):
    """Node to queue manager, in order with what it pulls and publishes: all that it has, of a span of request ids."""

    node: str
    epoch: str
    running: list[Attempt] = []
    """Pulled, and neither ended nor given back."""
    parked: list[Attempt] = []
    """Evicted: the node keeps their KV in host memory."""
    above: str = ""
    """The span: request ids behind this one."""
    upto: str = ""
    """The last of them; ``""`` where there is no end."""
    number: int = 0
    """As in `Pulled`: once more has been told, it is out of date. All parts have the same."""


class GatewayInventory(Message, frozen=True, kw_only=True):
    """Gateway to queue manager: all that it has in flight, of a span of request ids."""

    gateway: str
    number: int
    """As in the `GatewayBeat` that came before: what is older than that beat and not listed is over."""
    requests: list[Attempt] = []
    above: str = ""
    upto: str = ""


class IdRange(NamedTuple):
    """Request ids above one, up to another; ``""`` as the last stands for no end."""

    above: str
    upto: str

    def holds(self, request_id: str) -> bool:
        """Whether an id lies in it."""
        return self.above < request_id and (not self.upto or request_id <= self.upto)


def spans(request_ids: Iterable[str], max_requests: int = MAX_INVENTORY_REQUESTS) -> list[IdRange]:
    """Cut all ids there could be into spans with at most so many of these in each; there is always one."""
    names = sorted(request_ids)
    ends = [*names[max_requests - 1 : -1 : max_requests], ""]
    return [IdRange(above, upto) for above, upto in zip(["", *ends], ends, strict=False)]


def of_gateway(
    gateway: str, number: int, requests: Iterable[Attempt], max_requests: int = MAX_INVENTORY_REQUESTS
) -> list[GatewayInventory]:
    """An inventory in parts."""
    attempts = list(requests)
    return [
        GatewayInventory(
            gateway=gateway, number=number, requests=_within(span, attempts), above=span.above, upto=span.upto
        )
        for span in spans((attempt.request_id for attempt in attempts), max_requests)
    ]


def of_node(
    node: str,
    epoch: str,
    running: list[Attempt],
    parked: list[Attempt],
    number: int = 0,
    max_requests: int = MAX_INVENTORY_REQUESTS,
) -> list[NodeInventory]:
    """An inventory in parts."""
    return [
        NodeInventory(
            node=node,
            epoch=epoch,
            running=_within(span, running),
            parked=_within(span, parked),
            above=span.above,
            upto=span.upto,
            number=number,
        )
        for span in spans((attempt.request_id for attempt in [*running, *parked]), max_requests)
    ]


def _within(span: IdRange, attempts: list[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if span.holds(attempt.request_id)]
