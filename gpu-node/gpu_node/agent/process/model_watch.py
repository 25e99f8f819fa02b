"""The models of the configuration's file, as it changes while the node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from shared.config.config import ConfigError
from shared.config.engines.engine import ModelSpec
from shared.config.reading.file_watch import FileWatch
from shared.service.file_looks import next_look

Models = tuple[ModelSpec, ...]

log = structlog.get_logger()


class ModelWatch:
    """Reads a file again when it has changed. One that cannot be used changes nothing, and the log says why."""

    def __init__(self, file: FileWatch, read: Callable[[], Models], models: Models) -> None:
        """``models``: as they were read at start-up. ``read`` may raise `ConfigError`."""
        self._file = file
        self._read = read
        self._problem = ""
        self.models = models
        """As the file had them when it was usable last."""
        self.is_settled = False
        """Whether the file has ever stood still as it was read."""

    async def read(self) -> None:
        """Look at the file now: an engine that starts reads it as well."""
        self.models = await self._told() or self.models

    async def run(self, tell: Callable[[Models], Awaitable[None]]) -> None:
        """Look again and again, and ``tell`` what was read; for ever."""
        while True:
            await next_look(self._file, is_retry=bool(self._problem))
            if await self.look():
                await tell(self.models)

    async def look(self) -> bool:
        """Whether the file was read. Also where it has the models that it had: what could not be loaded may be there by
        now, and is tried again."""
        if not await asyncio.to_thread(self._file.must_be_read):
            return False
        told = await self._told()
        if told is None or not await asyncio.to_thread(self._file.is_still):
            return False
        self._file.settle()
        self.is_settled = True
        if told != self.models:
            log.info("models of the configuration have changed", models=[spec.name for spec in told])
        self.models = told
        return True

    async def _told(self) -> Models | None:
        """What the file says now; None where it cannot be used."""
        try:
            told = await asyncio.to_thread(self._read)
        except ConfigError as error:
            if str(error) != self._problem:
                log.error("configuration not read again: its models stay as they were", problem=str(error))
            self._problem = str(error)
            return None
        self._problem = ""
        return told
