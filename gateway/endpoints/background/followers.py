"""The responses in the background that this process follows, and how it comes by those of processes that died.

Every second (`SIGN_S` of `gateway.kept.background`) it shows that it lives, hears which of its responses are another
one's by now, and looks whose process has stopped showing that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

import msgspec
import structlog
from aiohttp import web

from gateway.endpoints.background.course import Course
from gateway.endpoints.background.follower import Follower
from gateway.http.context import METRICS
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.inflight.timeline import Timeline
from gateway.kept.background import Background, Claim, Standing
from gateway.kept.conversations import ConversationStore
from gateway.kept.missed_signs import MissedSigns
from shared.service.background.tasks import Supervised, cancel_all

MAX_UNWANTED = 1024  # of which Redis has not been told: it is away, and tells no process of them

_log = structlog.get_logger(__name__)


class Followers:
    """Of one process; see `following`."""

    def __init__(self, app: web.Application, background: Background, conversations: ConversationStore) -> None:
        self._app = app
        self._background = background
        self._conversations = conversations
        self._missed = MissedSigns(background.follower)
        self._followed: dict[str, tuple[Follower, asyncio.Task[None]]] = {}
        self._expected: set[str] = set()
        """Those that are on their way to Redis, or were and cannot be followed."""
        self._unwanted: deque[str] = deque(maxlen=MAX_UNWANTED)
        self._is_due = asyncio.Event()
        self._supervised = Supervised()

    @property
    def num_followed(self) -> int:
        """Responses that have not ended, of this process."""
        return len(self._followed)

    def begin(
        self,
        claim: Claim,
        course: Course | None = None,
        room: ExitStack | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        """Follow a response that was claimed; the rest is of the request that brought it, where one did."""
        follower = Follower(self._app, self._background, claim)
        room, timeline = room or ExitStack(), timeline or Timeline(arrival_s=_now())
        task = asyncio.create_task(follower.follow(course, room, timeline), name=claim.response_id)
        self._followed[claim.response_id] = (follower, task)
        task.add_done_callback(lambda done: self._ended(follower, room, done))

    async def create(self, claim: Claim) -> str:
        """As `Background.create`; one that may or may not have been made is removed."""
        self._expected.add(claim.response_id)
        try:
            return await self._background.create(claim)
        except QueueUnavailableError:
            self._unwanted.append(claim.response_id)
            raise
        finally:
            self._expected.discard(claim.response_id)

    def look_soon(self) -> None:
        """One of them may have been taken away."""
        self._is_due.set()

    @asynccontextmanager
    async def following(self, on_failure: Callable[[], None]) -> AsyncIterator[None]:
        """Inside, this process lives for others; on leaving, what it follows is left to them.

        ``on_failure`` has the process leave, as `Supervised.until_left` says.
        """
        with suppress(QueueUnavailableError):  # the next sign tells
            await self._background.sign([])
        async with self._supervised.until_left(on_failure):
            self._supervised.start("following responses", self._live())
            try:
                yield
            finally:
                await self._supervised.cancel()
                await cancel_all([task for _, task in self._followed.values()])
                await self._conversations.drain()
                await self._leave()

    async def _leave(self) -> None:
        try:
            await self._background.strike(self._background.follower)
        except QueueUnavailableError as error:
            _log.warning("no goodbye to followers: they will miss the signs of life", error=str(error))

    async def _live(self) -> None:
        while True:
            try:
                await self._sign()
                await self._look()
            except QueueUnavailableError as error:
                _log.warning("no sign of life of a follower", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._background.sign_s):
                    await self._is_due.wait()
            self._is_due.clear()

    async def _sign(self) -> None:
        followed = list(self._followed)
        standings = await self._background.sign(followed)
        for response_id, standing in zip(followed, standings, strict=True):
            follower, task = self._followed.get(response_id, (None, None))
            if follower is None or task is None or standing is Standing.OK:
                continue
            if standing is Standing.LOST:
                await follower.found_lost()
            else:
                follower.standing = standing
                task.cancel()

    async def _look(self) -> None:
        while self._unwanted:
            await self._background.remove(self._unwanted[0])
            self._unwanted.popleft()
        signs, orphans = await self._background.look([*self._followed, *self._expected])
        for process, sign in self._missed.look(signs):
            _log.warning("a follower shows no sign of life", follower=process)
            await self._background.strike(process, sign)
        for response_id in orphans:
            if response_id in self._followed or response_id in self._expected:
                continue
            try:
                claim = await self._background.claim(response_id)
                if claim is not None:
                    _log.info("response followed", response_id=response_id, life=claim.life)
                    self.begin(claim)
                    self._app[METRICS].taken_over.inc()
            except msgspec.MsgspecError as error:  # written by a newer version: it waits for another process
                _log.error("response unreadable", response_id=response_id, error=str(error))
                self._expected.add(response_id)

    def _ended(self, follower: Follower, room: ExitStack, task: asyncio.Task[None]) -> None:
        del self._followed[follower.response_id]
        room.close()  # it may have been cancelled before it began
        if not task.cancelled() and (error := task.exception()) is not None:  # it is followed again
            _log.error("response not followed any more", response_id=follower.response_id, exc_info=error)


def _now() -> float:
    return asyncio.get_running_loop().time()


FOLLOWERS = web.AppKey("FOLLOWERS", Followers)
"""Where answers are kept."""
