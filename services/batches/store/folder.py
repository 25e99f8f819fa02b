"""The folder that a batch service has to itself, and how its small files are written: whole, or not at all.

lock                    held by the process that uses the folder
token                   the secret between gateways and the service (`services.batches.token`)
uploads/                files that are still coming; emptied at start
files/ID.json, ID.data  a file: what is known of it, and its bytes
batches/ID/batch.json   a batch
batches/ID/output.jsonl, errors.jsonl   its results, until they become files
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from shared.errors import OperatorError


class BatchFolderError(OperatorError):
    """The folder cannot be used."""


class BatchFolder:
    """Its places, and the lock on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = root / "files"
        self.batches = root / "batches"
        self.uploads = root / "uploads"
        self._lock: BinaryIO | None = None

    def claim(self) -> None:
        """Make the folder and hold it; `BatchFolderError` where that cannot be, or another process holds it."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (self.root / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self.uploads, ignore_errors=True)  # of a life that is over: now the folder is ours
            for folder in (self.files, self.batches, self.uploads):
                folder.mkdir(mode=0o700, exist_ok=True)
        except BlockingIOError as error:
            self.release()
            raise BatchFolderError(
                f"{self.root}: another batch service uses this folder; stop it, or name another"
            ) from error
        except OSError as error:
            raise BatchFolderError(f"{self.root}: cannot be used for batches: {error.strerror}") from error

    def release(self) -> None:
        """Another process may have it."""
        if self._lock is not None:
            self._lock.close()


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file: after a crash it is as it was before, or as it is now."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with open(beside, "wb", opener=_for_its_owner) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_file(path: Path) -> None:
    """What was written to a file outlives a crash."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names in it are as they are now, also after a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
