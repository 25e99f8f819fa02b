"""Beginnings of prompts between nodes, which meet no Redis: who is asked, what is held for whom, and when that ends.

As `gpu_node.agent.images` does it (`prefix_giver`, `given_images`, `prefix_asker`), by the same bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpu_node.agent.decisions.actions import FetchPrefix
from gpu_node.agent.decisions.given_prefixes import COPY_S, HOLD_S, MAX_ASKS
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, ImageFile, ReleaseImages
from shared.messages.prefixes.prefix_ask import PrefixAsk
from tests.schedules.agenda import Agenda, Host, Signal, sleep, wait

TRANSFER_S = 0.2  # the longest, where nobody stands still


class NothingComesError(Exception):
    """The taker computes; why, in a word."""


@dataclass(slots=True)
class Reply:
    """Of a giver to one question."""

    news: Signal = field(default_factory=Signal)
    is_over: bool = False
    number: int = 0
    """Of the copy, as the engine calls it; 0 where nothing is given."""
    refusal: str = ""

    def end(self, refusal: str = "", number: int = 0) -> None:
        """Once; what comes later is not heard."""
        if not self.is_over:
            self.is_over, self.refusal, self.number = True, refusal, number
            self.news.notify()


@dataclass(slots=True)
class Asked:
    """A question that the giver's engine has not answered."""

    news: Signal = field(default_factory=Signal)
    answer: PrefixCopied | None = None


class Door:
    """Of one epoch of a node."""

    def __init__(
        self,
        host: Host,
        token: str,
        send: Callable[[CopyPrefix | ReleaseImages], None],
        meet: Callable[[str], Awaitable[bool]],
    ) -> None:
        """``send`` tells the engine; ``meet``: as `Process.meet`."""
        self.host = host
        self.asked: dict[int, Asked] = {}
        self.held: dict[int, ImageFile] = {}
        self.is_open = True
        self._token = token
        self._send = send
        self._meet = meet
        self._numbers = itertools.count(1)
        self._replies: list[Reply] = []

    def check(self, token: str) -> None:
        """`NothingComesError` for one who does not know this epoch's."""
        if token != self._token:
            raise NothingComesError("refused")

    def ask(self, ask: PrefixAsk, reply: Reply) -> None:
        """Somebody asks; ``reply`` is ended, whatever happens."""
        if len(self.asked) >= MAX_ASKS:
            return reply.end("busy")
        number = next(self._numbers)
        self.asked[number] = Asked()
        self._replies = [one for one in self._replies if not one.is_over] + [reply]
        self.host.spawn(self._give(number, ask, reply))
        return None

    async def _give(self, number: int, ask: PrefixAsk, reply: Reply) -> None:
        asked = self.asked[number]
        self._send(CopyPrefix(number, ask))
        await wait(asked.news, COPY_S)
        del self.asked[number]
        if asked.answer is None or asked.answer.file == NO_IMAGE:
            return reply.end("gone" if asked.answer else "busy")
        copy = asked.answer.image
        self.held[copy] = asked.answer.file
        if not await self._meet("prefix copy"):
            reply.end(number=copy)
        await sleep(HOLD_S)
        self._release(copy)
        return None

    def copied(self, event: PrefixCopied) -> None:
        """The engine has answered. What nobody waits for any more is dropped."""
        asked = self.asked.get(event.number)
        if asked is not None and asked.answer is None:
            asked.answer = event
            asked.news.notify()
        elif event.file != NO_IMAGE:
            self._send(ReleaseImages([event.image]))

    def collect(self, copy: int) -> ImageFile:
        """A copy, which is gone with that."""
        file = self.held.get(copy, NO_IMAGE)
        self._release(copy)
        return file

    def _release(self, copy: int) -> None:
        if self.held.pop(copy, None) is not None:
            self._send(ReleaseImages([copy]))

    def close(self) -> None:
        """The epoch is over: connections end."""
        self.is_open = False
        self.held.clear()
        for reply in self._replies:
            reply.end("unreachable")


@dataclass(slots=True)
class Doors:
    """Of all nodes, by name."""

    doors: dict[str, Door] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """What has come of fetches, as live metrics call it, and how often."""

    def count(self, how: str) -> None:
        """One is over."""
        self.ends[how] = self.ends.get(how, 0) + 1


class Asker:
    """One fetch of a taker; every wait in it ends by what the fetch is worth."""

    def __init__(self, agenda: Agenda, doors: Doors, wanted: FetchPrefix, is_wanted: Callable[[], bool]) -> None:
        """``is_wanted``: the request has not been given up."""
        self._agenda = agenda
        self._doors = doors.doors
        self._wanted = wanted
        self._is_wanted = is_wanted
        self._until_s = agenda.now + wanted.source.within_s

    async def fetch(self, latency_s: float, share: float, *, is_lost: bool = False) -> ImageFile:
        """The prefix. `NothingComesError` where it does not come; ``is_lost``: the question does not arrive."""
        source, payload = self._wanted.source, self._wanted.payload
        await self._pause(self._wanted.source.within_s if is_lost else latency_s)
        door = self._doors.get(source.door.url)
        while door is not None and door.is_open and door.host.frozen_until_s > self._agenda.now:
            await self._pause(door.host.frozen_until_s - self._agenda.now)  # it has the question when it goes on
        if door is None or not door.is_open:
            raise NothingComesError("unreachable")
        door.check(source.door.token)
        reply = Reply()
        ask = PrefixAsk(
            request_id=payload.request_id,
            attempt=payload.attempt,
            model=payload.model,
            adapter=payload.adapter,
            kv_format=source.kv_format,
            token_ids=payload.prompt_token_ids,
            from_token=self._wanted.from_token,
            partition=payload.partition,
        )
        door.ask(ask, reply)
        while not reply.is_over:
            await self._pause(self._until_s - self._agenda.now, reply.news)
        if reply.refusal:
            raise NothingComesError(reply.refusal)
        await self._pause(TRANSFER_S * share)
        while door.host.frozen_until_s > self._agenda.now and door.is_open:
            await self._pause(door.host.frozen_until_s - self._agenda.now)
        file = door.collect(reply.number)
        if file == NO_IMAGE:
            raise NothingComesError("lost")
        return file

    async def _pause(self, seconds: float, news: Signal | None = None) -> None:
        left_s = self._until_s - self._agenda.now
        if news is None:
            await sleep(min(seconds, left_s))
        else:
            await wait(news, min(seconds, left_s))
        if not self._is_wanted():
            raise NothingComesError("stopped")
        if self._agenda.now >= self._until_s:
            raise NothingComesError("late")
