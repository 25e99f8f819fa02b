"""A core whose every effect carries its running number: one lost, doubled or out of order, and the numbers show it."""

from __future__ import annotations

from typing import Any

import msgspec
from redis.asyncio import Redis

from shared.bus import streams
from shared.messages.codec import FIELD, decode, decode_entry, encode
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.core import Core, Drop, Effect, Send

SERVICE = "counting"
INBOX = "treadle:counting"
OUT = "treadle:counting:out"
SCRATCH = "treadle:counting:scratch"

TICK_EVERY_WORDS = 10
TICK_AFTER_S = 0.003
DROP_EVERY_WORDS = 25
POISON = "poison"


class State(msgspec.Struct):
    num_words: int = 0
    num_effects: int = 0
    wake_at: float | None = None


class CountingCore:
    """Numbers the words that come in (a `Cancel` each). Every tenth wants a Tick, which is numbered as well.

    Words also go to a scratch stream, dropped at every 25th. ``poison`` makes the core raise, half changed.
    """

    def __init__(self) -> None:
        self.state = State()

    @property
    def wake_at(self) -> float | None:
        return self.state.wake_at

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        state = self.state
        match message:
            case Cancel(request_id=word):
                state.num_words += 1
                if word == POISON:
                    raise ValueError("poisoned")
                if state.wake_at is None and state.num_words % TICK_EVERY_WORDS == 0:
                    state.wake_at = now + TICK_AFTER_S
                scratch = Send(SCRATCH, Cancel(request_id=word))
                dropped = [Drop(SCRATCH)] if state.num_words % DROP_EVERY_WORDS == 0 else []
                return [self._numbered(word), *dropped, scratch]
            case Tick() if state.wake_at is not None and now >= state.wake_at:
                state.wake_at = None
                return [self._numbered("tick")]
        return []

    def _numbered(self, word: str) -> Send:
        self.state.num_effects += 1
        return Send(OUT, Cancel(request_id=f"{self.state.num_effects} {word}"))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=State)

    def describe(self) -> dict[str, object]:
        return {"num_words": self.state.num_words}


async def say(redis: Redis, *words: str) -> None:
    """Words into the inbox, in this order."""
    async with redis.pipeline(transaction=False) as pipe:
        for word in words:
            pipe.xadd(INBOX, {FIELD: encode(Cancel(request_id=word))})
        await pipe.execute()


async def said(redis: Redis, stream: str = OUT) -> list[str]:
    """Words of a stream, in order."""
    entries: Any = await redis.xrange(stream)
    return [_word(fields[FIELD]) for _, fields in entries]


def _word(data: bytes) -> str:
    message = decode(data)
    assert isinstance(message, Cancel)
    return message.request_id


async def num_ticks(redis: Redis) -> int:
    """Ticks in the inbox."""
    entries: Any = await redis.xrange(INBOX)
    return sum(isinstance(decode_entry(fields), Tick) for _, fields in entries)


async def committed_id(redis: Redis) -> bytes:
    """How far effects were sent."""
    found: Any = await redis.hget(streams.state(SERVICE), "committed")
    return found or b"0-0"


def check_numbers(effects: list[str], words: list[str]) -> None:
    """Every effect once and in order: numbers without a gap, words as they were said, ticks between them."""
    pairs = [effect.split(" ", 1) for effect in effects]
    assert [int(number) for number, _ in pairs] == list(range(1, len(pairs) + 1))
    assert [word for _, word in pairs if word != "tick"] == words


def check_scratch(scratch: list[str], words: list[str]) -> None:
    """Words since the last drop, each once."""
    assert scratch == words[len(words) // DROP_EVERY_WORDS * DROP_EVERY_WORDS - 1 :]


def fold(core: Core, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[Effect]:
    """What a core answers to recorded entries, without any driver."""
    effects: list[Effect] = []
    for entry_id, fields in entries:
        effects += core.handle(decode_entry(fields), int(entry_id.split(b"-")[0]) / 1000)
    return effects
