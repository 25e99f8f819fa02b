"""What the cluster says, in portions that one round of the event loop can take. No I/O, no clock.

What is delivered wakes the handlers of its requests, and all that are woken run in the next round: so a round is
bounded by how many are woken, and by how much they are told. Several tokens of one request wake it once, and go out in
one piece: a gateway that is behind catches up by that, so a portion is not bounded by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gateway.inflight.dispatcher import Inbound
from shared.messages.requests import QueueStatus, Tokens

WOKEN_A_ROUND = 128  # handlers, each of which writes to its client: 0.1 ms
CHUNKS_A_ROUND = 1024  # to take one in costs 10 µs

Portion = list[Inbound]


def portions(messages: Iterable[Inbound]) -> Iterator[Portion]:
    """All messages in their order; what wakes too many at once is divided."""
    portion: Portion = []
    woken: set[str] = set()
    num_chunks = 0
    for message in messages:
        for part in _parts(message):
            ids = _ids(part)
            portion.append(part)
            woken.update(ids)
            num_chunks += len(ids)
            if len(woken) >= WOKEN_A_ROUND or num_chunks >= CHUNKS_A_ROUND:
                yield portion
                portion, woken, num_chunks = [], set(), 0
    if portion:
        yield portion


def _parts(message: Inbound) -> Iterator[Inbound]:
    if not isinstance(message, Tokens) or len(message.chunks) <= WOKEN_A_ROUND:
        yield message
        return
    for start in range(0, len(message.chunks), WOKEN_A_ROUND):
        yield msgspec.structs.replace(message, chunks=message.chunks[start : start + WOKEN_A_ROUND])


def _ids(message: Inbound) -> list[str]:
    """Whom it wakes."""
    match message:
        case Tokens():
            return [chunk.request_id for chunk in message.chunks]
        case QueueStatus():
            return [place.request_id for place in message.places]
        case _:  # attempts are submitted one after the other, and each waits for Redis
            return []
