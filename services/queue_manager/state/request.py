"""An accepted request, as the queue manager knows it."""

from __future__ import annotations

import msgspec

from shared.messages.requests.requests import ImageTicket, Submit
from shared.messages.requests.slo import Slo


class Request(msgspec.Struct, array_like=True, gc=False):
    """An accepted request until it has finished or was cancelled.

    There may be hundreds of thousands: it is an array in snapshots, and names and promises are shared (`interning`).
    """

    request_id: str
    gateway: str
    model: str
    slo: Slo
    tenant: str
    prompt_tokens: int
    """To be computed before the first new token, as of this attempt."""
    max_tokens: int
    """To be drawn at most, by all attempts together."""
    arrival_s: float
    attempt: int
    group: str = ""
    """Its group; ``""`` while it is being located, or waits for its gateway to submit it again."""
    node: str = ""
    """The node that pulled this attempt; ``""`` while it waits in its group."""
    begins_s: float = 0.0
    """When its prompt will have been computed, as far as is known since ``node`` pulled it (`prompts`)."""
    done_tokens: int = 0
    """Output tokens that it had when it last began to wait: drawn by an earlier attempt, or before it was evicted."""
    kv_tokens: int = 0
    """While it waits after an eviction: tokens whose KV is kept at its group's ``kv_at``."""
    warm_tokens: int = 0
    """Of its prompt, those that its group's node has cached (`Group.warm_at`)."""
    needs: str = ""
    """As in `Submit`."""
    left: str = ""
    """The node that it has left to begin elsewhere, until it is placed again (`take_over`)."""
    image: ImageTicket | None = None
    """While it waits with KV that was handed over: where that is fetched."""
    reader: str = ""
    """The node that reads its KV while ``node`` computes its prompt (`readers`)."""
    giver: str = ""
    """The node that has handed its KV over, which the one that pulled this attempt may have yet to fetch."""

    @property
    def start_by_s(self) -> float:
        """When it must have started."""
        return self.slo.start_by_s(self.arrival_s)

    def begin_attempt(self, message: Submit) -> None:
        """Its gateway submits it once more, with what is left to do. It must not stand in a group."""
        self.attempt, self.prompt_tokens = message.attempt, message.prompt_tokens
        self.reader = self.giver = ""
        self.done_tokens = max(0, self.max_tokens - message.max_tokens)
