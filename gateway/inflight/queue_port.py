"""The gateway's one border towards the queue. What lies behind it (Redis, or a test's memory) is not its business."""

from __future__ import annotations

from typing import Protocol

from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Submit


class QueueUnavailableError(Exception):
    """The queue cannot be reached right now; the client is answered 503 and may try again."""


class QueueFullError(QueueUnavailableError):
    """The queue has no memory for another request; the client is answered 429 and may try again."""


class QueuePort(Protocol):
    """What the gateway asks of the queue. Each call raises `QueueUnavailableError` when it could not be made."""

    async def submit(self, payload: Payload, submit: Submit) -> None:
        """Write the payload key and append ``submit``, both or neither; done again for each new attempt.

        `QueueFullError` for a first attempt only: what was accepted goes on.
        """

    async def cancel(self, request_id: str) -> None:
        """Append a `Cancel` and delete the payload: this request is not waited for any more."""

    async def finish(self, request_id: str) -> None:
        """Delete the payload of a request whose last token has arrived."""
