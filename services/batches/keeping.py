"""How long files and batches are kept: until their time is over, and no client reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from services.batches.metrics import BatchMetrics
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from shared.messages.batches.batches import BatchRecord

SWEEP_S = 60.0
MAX_ENDED = 10_000  # batches of a tenant that are remembered when they have ended
_log = structlog.get_logger()


def remove_batch(files: FileStore, batches: BatchStore, record: BatchRecord) -> None:
    """Remove one that has ended. Of Anthropic's interface its files go before it: nothing else names them.

    OSError where that fails half-way: it can be removed again.
    """
    if record.interface == "anthropic":
        for file in (record.asked.input_file_id, record.output_file_id, record.error_file_id):
            if file is not None and files.get(file) is not None:
                files.remove(file)
    batches.remove(record.id)


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
        """Once: files whose time is over and that no batch reads; batches that ended long ago, or are too many."""
        now = self._clock()
        records = list(self._batches.all())
        read = {one.asked.input_file_id for one in records if not one.has_ended}
        try:
            for file in self._files.expired(now):
                if file not in read:
                    self._files.remove(file)
            kept = Counter[str]()
            for record in reversed(records):  # the newest first
                kept[record.tenant] += record.has_ended
                is_over = record.created_s + self._keep_s <= now or kept[record.tenant] > MAX_ENDED
                if record.has_ended and is_over:
                    remove_batch(self._files, self._batches, record)
                elif (
                    record.has_ended and record.interface == "anthropic" and self._files.get(record.asked.input_file_id)
                ):
                    self._files.remove(record.asked.input_file_id)
        except OSError as error:  # the next sweep goes on
            _log.error("not_removed", problem=str(error))
        self._metrics.stored.set(self._files.totals[1])
