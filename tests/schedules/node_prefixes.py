"""What an epoch of a node does about beginnings of prompts: its door, and its fetches from others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_node.agent.decisions.actions import FetchPrefix, PrefixFetched
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, ImageFile, ReleaseImages
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests.requests import Attempt
from tests.schedules.doors import Asker, Door, Doors, NothingComesError
from tests.schedules.ledger import BrokenPromiseError
from tests.schedules.process import Process


class NodePrefixes:
    """Of one epoch."""

    def __init__(
        self,
        process: Process,
        epoch: str,
        doors: Doors,
        send: Callable[[CopyPrefix | ReleaseImages], None],
        hear: Callable[[PrefixFetched], None],
    ) -> None:
        self.kv_door = KvDoor(process.name, epoch)
        self._process = process
        self._doors = doors
        self._hear = hear
        self._fetching: dict[Attempt, FetchPrefix] = {}
        self.door = doors.doors[process.name] = Door(process, epoch, send, process.meet)

    def __len__(self) -> int:
        """Fetches that are on their way, questions, and copies that wait for others."""
        return len(self._fetching) + len(self.door.asked) + len(self.door.held)

    def copied(self, event: PrefixCopied) -> None:
        """As `Door.copied`."""
        self.door.copied(event)

    def fetch(self, wanted: FetchPrefix) -> None:
        """Answered, unless it is stopped."""
        attempt = Attempt(wanted.payload.request_id, wanted.payload.attempt)
        if attempt in self._fetching:
            raise BrokenPromiseError(f"{self._process.name} fetches the prompt of {attempt} twice at a time")
        self._fetching[attempt] = wanted
        self._process.spawn(self._fetch(wanted, attempt))

    def stop(self, attempts: Iterable[Attempt]) -> None:
        """These were given up."""
        for attempt in attempts:
            self._fetching.pop(attempt, None)

    async def _fetch(self, wanted: FetchPrefix, attempt: Attempt) -> None:
        def is_wanted() -> bool:
            return self._fetching.get(attempt) is wanted

        process, file, how = self._process, NO_IMAGE, "fetched"
        asker = self._asker(wanted, is_wanted)
        try:
            file = await self._fetched(asker)
        except NothingComesError as error:
            how = str(error)
        self._doors.count(how if is_wanted() else "stopped")
        process.note("prefix of", attempt, how)
        if is_wanted():
            del self._fetching[attempt]
            self._hear(PrefixFetched(wanted.payload, file, 0.0))

    def _asker(self, wanted: FetchPrefix, is_wanted: Callable[[], bool]) -> Asker:
        return Asker(self._process.agenda, self._doors, wanted, is_wanted)

    async def _fetched(self, asker: Asker) -> ImageFile:
        process = self._process
        is_lost = await process.meet("prefix ask")
        latency_s = process.world.latency_s * process.chance.random()
        file = await asker.fetch(latency_s, process.chance.random(), is_lost=is_lost)
        if await process.meet("prefix fetched"):
            raise NothingComesError("lost")  # torn, damaged
        return file

    def close(self) -> None:
        """The epoch is over."""
        self.door.close()
