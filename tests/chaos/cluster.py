"""The cluster as the suite holds it: processes, their lines to Redis, a supervisor that starts what has died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import aiohttp

from shared.service.background.tasks import cancel_all
from tests.chaos.member import Member
from tests.chaos.members import at, make_members
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server

RESTART_S = 0.5  # as `restart: unless-stopped` takes for a first restart
SUPERVISE_S = 0.1
READY_S = 120.0  # for a whole cluster to start on two cores that others use as well
PROBE_S = 3.0
_POLL_S = 0.2

Readiness = dict[str, str]


class Cluster:
    """All processes of a run."""

    def __init__(self, folder: Path, otlp_url: str) -> None:
        self.folder = folder
        self.members: dict[str, Member] = {member.name: member for member in make_members(folder, otlp_url)}
        self.server = Server(folder)
        self.proxy = Proxy(self.server.port)
        self.ended_by_us: set[int] = set()
        """Processes that a fault ended."""
        self._supervisor: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    def of(self, kind: str) -> list[Member]:
        """Members of a kind."""
        return [member for member in self.members.values() if member.kind == kind]

    async def start(self) -> None:
        """Everything, until it serves."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_S))
        await self.server.start()
        for member in self.members.values():
            line = await self.proxy.line(member.name)
            at(member, line.port).start()
        self._supervisor = asyncio.create_task(self._supervise())
        await self.wait_ready(READY_S)

    async def close(self) -> None:
        """Nothing is left of it, whatever state it is in."""
        if self._supervisor is not None:
            await cancel_all([self._supervisor])
        for member in reversed(self.members.values()):
            member.end()
        await self.proxy.close()
        await self.server.close()
        if self._session is not None:
            await self._session.close()

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def get(self, member: Member, path: str) -> tuple[int, str]:
        """Status and body; status 0 where it does not answer."""
        assert self._session is not None
        if member.is_stopped:
            return 0, ""
        try:
            async with self._session.get(member.url + path) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, ""

    async def missing(self) -> Readiness:
        """Members that are not ready, with what they say."""
        answers = await asyncio.gather(*(self.get(member, "/readyz") for member in self.members.values()))
        return {
            name: text.strip() or f"status {status}"
            for name, (status, text) in zip(self.members, answers, strict=True)
            if status != 200
        }

    async def wait_ready(self, timeout_s: float) -> None:
        """Until all are; `TimeoutError` names those that are not."""
        missing: Readiness = {}
        try:
            async with asyncio.timeout(timeout_s):
                while missing := await self.missing():  # noqa: ASYNC110 - processes set no event
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise TimeoutError(f"not ready within {timeout_s:g} s: {missing}") from None

    # --- supervision --------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Start again what has died, as Kubernetes or compose would."""
        due: dict[str, float] = {}
        clock = asyncio.get_running_loop().time
        while True:
            for member in self.members.values():
                if member.is_held or not member.reap():
                    due.pop(member.name, None)
                elif clock() >= due.setdefault(member.name, clock() + RESTART_S):
                    member.start()
                    del due[member.name]
            await asyncio.sleep(SUPERVISE_S)

    def kill(self, member: Member) -> None:
        """``kill -9``, noted as ours."""
        if member.pid is not None:
            self.ended_by_us.add(member.pid)
        member.kill()


def shuffled(random: Random, members: Iterator[Member] | list[Member]) -> list[Member]:
    """In an order of the seed's."""
    found = list(members)
    random.shuffle(found)
    return found


Now = Callable[[], float]
