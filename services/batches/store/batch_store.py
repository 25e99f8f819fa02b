"""Records of batches: on the disk as they were when they last changed, and in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from services.batches.store.folder import BatchFolder, sync_folder, write_whole
from shared.messages.batches.batches import BatchInterface, BatchPage, BatchRecord

_log = structlog.get_logger()


class BatchStore:
    """All batches, those that have ended included, until their time is over."""

    def __init__(self, folder: BatchFolder) -> None:
        self._folder = folder
        self._batches: dict[str, BatchRecord] = {}

    def load(self) -> None:
        """Find what an earlier life has left. A record that cannot be read is left where it is, and told."""
        found = []
        for place in sorted(self._folder.batches.iterdir()):
            path = place / "batch.json"
            if not path.exists():  # it was being made, or removed
                shutil.rmtree(place)
                continue
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=BatchRecord))
            except (msgspec.MsgspecError, OSError) as error:
                _log.error("batch_record_unreadable", path=str(path), problem=str(error))
        self._batches = {one.id: one for one in sorted(found, key=lambda one: (one.created_s, one.id))}

    def folder(self, batch: str) -> Path:
        """Where its results lie while it runs."""
        return self._folder.batches / batch

    def all(self) -> Iterable[BatchRecord]:
        """In the order of their making."""
        return list(self._batches.values())

    def get(self, batch: str) -> BatchRecord | None:
        """None where there is none."""
        return self._batches.get(batch)

    def num_open(self, tenant: str) -> int:
        """Batches of a tenant that have not ended."""
        return sum(one.tenant == tenant and not one.has_ended for one in self._batches.values())

    def save(self, record: BatchRecord) -> None:
        """New, or changed. OSError leaves it as it was."""
        place = self.folder(record.id)
        is_new = record.id not in self._batches
        if is_new:
            place.mkdir(mode=0o700)
        try:
            write_whole(place / "batch.json", msgspec.json.encode(record))
        except OSError:
            if is_new:
                shutil.rmtree(place, ignore_errors=True)
            raise
        if is_new:
            sync_folder(self._folder.batches)
        self._batches[record.id] = record

    def remove(self, batch: str) -> None:
        """Forget it; its files are files of their own."""
        del self._batches[batch]
        place = self.folder(batch)
        (place / "batch.json").unlink(missing_ok=True)
        shutil.rmtree(place)

    def page(
        self, tenant: str, interface: BatchInterface, *, after: str | None = None, before: str | None = None, limit: int
    ) -> BatchPage | None:
        """Batches of a tenant and an interface, newest first: those behind ``after``, or the last before ``before``.

        None where there is no such batch.
        """
        own = [one for one in reversed(self._batches.values()) if one.tenant == tenant and one.interface == interface]
        mark = after if after is not None else before
        if mark is not None:
            place = next((place for place, one in enumerate(own) if one.id == mark), None)
            if place is None:
                return None
            own = own[:place] if after is None else own[place + 1 :]
        is_backwards = after is None and before is not None
        return BatchPage(batches=own[-limit:] if is_backwards else own[:limit], has_more=len(own) > limit)
