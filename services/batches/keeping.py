"""How long files and batches are kept: until their time is over, and nobody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from services.batches.metrics import BatchMetrics
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore

SWEEP_S = 60.0
_log = structlog.get_logger()


class BatchKeeper:
    """Removes what need not be kept."""

    def __init__(
        self, files: FileStore, batches: BatchStore, metrics: BatchMetrics, keep_s: int, clock: Callable[[], float]
    ) -> None:
        self._files = files
        self._batches = batches
        self._metrics = metrics
        self._keep_s = keep_s
        self._clock = clock

    async def run(self) -> None:
        """For ever."""
        while True:
            self.sweep()
            await asyncio.sleep(SWEEP_S)

    def sweep(self) -> None:
        """Once: files whose time is over and that no batch reads, batches that were made so long ago and have ended."""
        now = self._clock()
        records = list(self._batches.all())
        read = {one.asked.input_file_id for one in records if not one.has_ended}
        try:
            for file in self._files.expired(now):
                if file not in read:
                    self._files.remove(file)
            for record in records:
                if record.has_ended and record.created_s + self._keep_s <= now:
                    self._batches.remove(record.id)
        except OSError as error:  # the next sweep goes on
            _log.error("not_removed", problem=str(error))
        self._metrics.open.set(sum(not one.has_ended for one in self._batches.all()))
        self._metrics.stored.set(self._files.totals[1])
