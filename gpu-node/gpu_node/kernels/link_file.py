"""What both ends of a link agree on: the file that they find each other by."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 (shared memory is the point; files are of mode 0600 and checked)
MODE = 0o600
_PREFIX = "treadle-link-"
_EPOCH = re.compile(r"[A-Za-z0-9._-]{1,95}")
_MAX_NAME = 255
_NEW_S = 60.0
"""A file that is no older may be one that its maker has not locked yet."""


class LinkError(RuntimeError):
    """Two engines can share no memory; the text says why. They go on without."""


def link_path(folder: Path, sender: str, receiver: str) -> Path:
    """The file of the link between two epochs."""
    for epoch in (sender, receiver):
        if not _EPOCH.fullmatch(epoch):
            raise LinkError(f"no link between {sender!r} and {receiver!r}: {epoch!r} cannot be part of a file's name")
    path = folder / f"{_PREFIX}{sender}-to-{receiver}"
    if len(path.name) > _MAX_NAME:
        raise LinkError(f"no link between {sender!r} and {receiver!r}: their names are too long for a file's name")
    return path


def new_link_file(path: Path, num_bytes: int) -> int:
    """Make it, with all of its room; a file that is open. `LinkError`."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise LinkError(f"no link {path}: {error.strerror}") from error
    try:
        os.fchmod(file, MODE)  # whatever the umask is
        os.posix_fallocate(file, 0, num_bytes)  # now, where it can be refused, and not when it is written
        fcntl.flock(file, fcntl.LOCK_EX)  # until the process ends: see `sweep_links`
    except OSError as error:
        os.close(file)
        path.unlink(missing_ok=True)
        raise LinkError(
            f"no link {path}: {error.strerror}; it takes {num_bytes:,} bytes of {path.parent} "
            "(of a container: --shm-size, or a volume of medium Memory)"
        ) from error
    return file


def open_link_file(path: Path) -> int:
    """Open what another engine of this user has made; a file that is open. `LinkError`."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise LinkError(f"no link {path}: {error.strerror}") from error
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != MODE:
        os.close(file)
        raise LinkError(
            f"no link {path}: it is not a file of user {os.geteuid()} that no other user may read "
            f"(user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o})"
        )
    return file


def sweep_links(folder: Path = FOLDER) -> list[Path]:
    """Remove links whose makers are dead, and say which: a maker that lives holds a lock on its file."""
    swept = []
    for path in sorted(folder.glob(f"{_PREFIX}*")):
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone meanwhile, or another user's
            continue
        try:
            is_old = time.time() - os.fstat(file).st_mtime > _NEW_S
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_old:
                path.unlink(missing_ok=True)
                swept.append(path)
        except BlockingIOError:
            continue
        finally:
            os.close(file)
    return swept
