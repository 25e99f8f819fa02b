"""Files of clients and results of batches: their bytes on the disk, and what is known of them in memory.

A file is there when both are, record and bytes. The record comes first: results of a batch whose bytes did not follow
it are still where the batch runs, and are added again. What a crash leaves of a file is removed at the next start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from services.batches.store.folder import BatchFolder, sync_folder, write_whole
from shared.messages.batches.batches import BatchInterface, FilePage, FilePurpose, StoredFile

MAX_FILES = 10_000  # of a tenant
_log = structlog.get_logger()


class FileStore:
    """All files. Memory for each: some hundred bytes."""

    def __init__(self, folder: BatchFolder) -> None:
        self._folder = folder
        self._files: dict[str, StoredFile] = {}
        self._num_bytes: Counter[str] = Counter()
        self._num_files: Counter[str] = Counter()

    def load(self) -> None:
        """Find what an earlier life has left. A record that cannot be read is left where it is, and told."""
        found = []
        for path in sorted(self._folder.files.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=StoredFile))
            except (msgspec.MsgspecError, OSError) as error:
                _log.error("file_record_unreadable", path=str(path), problem=str(error))
        for one in sorted(found, key=lambda one: (one.created_s, one.id)):
            if self.path(one.id).exists():
                self._note(one)
            else:
                _log.warning("file_incomplete", file=one.id, tenant=one.tenant)
                self._record(one.id).unlink()
        for path in [*self._folder.files.glob("*.data"), *self._folder.files.glob("*.new")]:
            if path.suffix == ".new" or not self._record(path.stem).exists():
                path.unlink()

    def path(self, file: str) -> Path:
        """Where its bytes are."""
        return self._folder.files / f"{file}.data"

    def get(self, file: str) -> StoredFile | None:
        """None where there is none."""
        return self._files.get(file)

    def num_bytes(self, tenant: str) -> int:
        """What all files of a tenant take."""
        return self._num_bytes[tenant]

    def is_full(self, tenant: str) -> bool:
        """A tenant has as many files as it may have."""
        return self._num_files[tenant] >= MAX_FILES

    @property
    def totals(self) -> tuple[int, int]:
        """Files and bytes of all tenants."""
        return len(self._files), self._num_bytes.total()

    def add(self, record: StoredFile, data: Path) -> None:
        """Take a file that is synced, wherever it lies on the same disk; OSError leaves it where it is."""
        write_whole(self._record(record.id), msgspec.json.encode(record))
        try:
            data.replace(self.path(record.id))
        except OSError:
            self._record(record.id).unlink(missing_ok=True)
            raise
        sync_folder(self._folder.files)
        self._note(record)

    def remove(self, file: str) -> None:
        """Its record first: what is left of it after a crash is removed at the next start."""
        record = self._files.pop(file)
        self._num_bytes[record.tenant] -= record.num_bytes
        self._num_files[record.tenant] -= 1
        self._record(file).unlink(missing_ok=True)
        self.path(file).unlink(missing_ok=True)

    def expired(self, now_s: float) -> list[str]:
        """Files whose time is over."""
        return [one.id for one in self._files.values() if one.expires_s is not None and one.expires_s <= now_s]

    def page(
        self,
        tenant: str,
        interface: BatchInterface,
        *,
        after: str | None,
        limit: int,
        newest_first: bool,
        purpose: FilePurpose | None,
    ) -> FilePage | None:
        """Files of a tenant and an interface behind ``after``, in the order of their making; None where it is none."""
        ordered: Iterable[StoredFile] = reversed(self._files.values()) if newest_first else self._files.values()
        own = [one for one in ordered if one.tenant == tenant and one.interface == interface]
        if after is not None:
            place = next((place for place, one in enumerate(own) if one.id == after), None)
            if place is None:
                return None
            own = own[place + 1 :]
        own = [one for one in own if purpose is None or one.purpose == purpose]
        return FilePage(files=own[:limit], has_more=len(own) > limit)

    def _note(self, record: StoredFile) -> None:
        self._files[record.id] = record
        self._num_bytes[record.tenant] += record.num_bytes
        self._num_files[record.tenant] += 1

    def _record(self, file: str) -> Path:
        return self._folder.files / f"{file}.json"
