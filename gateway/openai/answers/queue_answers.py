"""Treadle's own answers: what clients are told about the queue. Seconds that cannot be predicted are null."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from shared.messages.requests.requests import QueueLine, QueuePlace


class PlaceComment(Struct, frozen=True, kw_only=True):
    """Where a request stands; comes as an SSE comment while it waits (``stream_options.include_queue``)."""

    num_ahead: int
    """Requests that are predicted to start before it; where keys name several tenants, those of its own."""
    wait_s: float | None
    """Predicted time until it starts."""
    wait_p90_s: float | None
    """The time that it will not exceed with a probability of 90 %."""

    @classmethod
    def of(cls, place: QueuePlace, *, own: bool = False) -> PlaceComment:
        """What the queue manager says of it; ``own``: only requests of its tenant are counted."""
        num_ahead = place.num_ahead - (place.num_others_ahead if own else 0)
        return cls(num_ahead=num_ahead, wait_s=_known(place.wait_s), wait_p90_s=_known(place.wait_p90_s))


class QueueEntry(Struct, frozen=True, kw_only=True):
    """How it stands for the requests of one model and one kind of promise."""

    model: str
    slo_class: str
    """A configured class; of promises in numbers, their order of magnitude (``custom-32s``)."""
    num_waiting: int
    num_running: int
    wait_s: float | None
    """Predicted time to the first token of a request that comes now; null while no node can serve the model."""
    wait_p90_s: float | None
    """The time that it will not exceed with a probability of 90 %."""

    @classmethod
    def of(cls, line: QueueLine) -> QueueEntry:
        """What the queue manager says of them."""
        return cls(
            model=line.model,
            slo_class=line.slo,
            num_waiting=line.num_waiting,
            num_running=line.num_running,
            wait_s=_known(line.wait_s),
            wait_p90_s=_known(line.wait_p90_s),
        )


class QueueReport(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/queue``, by model and class; where keys name several tenants, of the client's own alone."""

    object: Literal["queue"] = "queue"
    age_s: float | None
    """Since the queue manager said this, which it does every few seconds; null before this gateway has heard it."""
    is_stale: bool
    """It has not been heard for so long that nothing is known of the queue: ``data`` is empty then."""
    data: list[QueueEntry]
    """Empty also where nothing waits or runs."""


def _known(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
