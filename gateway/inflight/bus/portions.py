"""What the cluster says, in portions that one round of the event loop can take. No I/O, no clock.

To take news in costs little beside what they make happen: some wake a handler, which runs in the next round; tokens of
streams are written in the rounds that follow (`rounds`), and what comes for one before its turn goes out with it. So a
gateway that is behind catches up, and a new connection meanwhile waits for rounds of a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gateway.inflight.dispatcher import Inbound
from shared.messages.requests.requests import Chunk, QueueStatus, Tokens

NEWS_A_ROUND = 16  # chunks and places, as many as are written in one; each may wake a handler for 0.1 ms

Portion = list[Inbound]


def split_first_tokens(messages: Iterable[Inbound]) -> tuple[list[Inbound], list[Inbound]]:
    """The tokens with which answers begin, and all the rest, each in its order.

    A request without a token waits longest, so these may overtake: the first token of a choice has nothing of its
    choice before it. One that ends its choice stays where it is, for the ends of the others may have to come before it.
    """
    first: list[Inbound] = []
    rest: list[Inbound] = []
    for message in messages:
        if not isinstance(message, Tokens) or not (beginning := [one for one in message.chunks if _is_first(one)]):
            rest.append(message)
            continue
        first.append(msgspec.structs.replace(message, chunks=beginning))
        if len(beginning) < len(message.chunks):
            others = [one for one in message.chunks if not _is_first(one)]
            rest.append(msgspec.structs.replace(message, chunks=others))
    return first, rest


def _is_first(chunk: Chunk) -> bool:
    return not chunk.index and not chunk.finish_reason and not chunk.is_last


def portions(messages: Iterable[Inbound]) -> Iterator[Portion]:
    """All messages in their order; what tells of too many requests at once is divided."""
    portion: Portion = []
    num_news = 0
    for message in messages:
        for part in _parts(message, NEWS_A_ROUND - num_news):
            portion.append(part)
            num_news += _num_news(part)
            if num_news >= NEWS_A_ROUND:
                yield portion
                portion, num_news = [], 0
    if portion:
        yield portion


def _parts(message: Inbound, num_first: int) -> Iterator[Inbound]:
    """The message, or a step's tokens in pieces of which the first is the rest of a portion."""
    if not isinstance(message, Tokens) or len(message.chunks) <= num_first:
        yield message
        return
    chunks = message.chunks
    yield msgspec.structs.replace(message, chunks=chunks[:num_first])
    for start in range(num_first, len(chunks), NEWS_A_ROUND):
        yield msgspec.structs.replace(message, chunks=chunks[start : start + NEWS_A_ROUND])


def _num_news(message: Inbound) -> int:
    match message:
        case Tokens():
            return len(message.chunks)
        case QueueStatus():
            return len(message.places)
        case _:  # attempts are submitted one after the other, and each waits for Redis
            return 0
