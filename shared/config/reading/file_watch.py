"""Whether a file has changed, and has stood still since: one that is written piece by piece is not read half.

What tells a change is the file behind all links: Kubernetes renews a mounted Secret or ConfigMap by turning a link to
another directory, so the path stays and the inode changes. A change holds once two looks in a row have found the same
file: of one that is written in place, a beginning would be taken for the whole.
"""

from __future__ import annotations

from pathlib import Path

Signature = tuple[int, int, int, int]
"""Device, inode, size and time of change of a file."""


class FileWatch:
    """One file. Its calls look at a disk, which may be slow: threads make them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._looked: Signature | None = None
        """As the last look found the file."""
        self.has_changed = False
        """Whether the last look found another file than the one before it: what it says is not known yet."""
        self._settled: Signature | None = None
        """As it was when what was read of it was taken over."""

    def must_be_read(self) -> bool:
        """Whether it is another file than the one that `settle` was told of, and the same as at the last look.

        True again at each look until it is settled, also of a file that is not there: who lets it be read, or its
        folder, does not change the file.
        """
        before, self._looked = self._looked, _signature(self.path)
        self.has_changed = self._looked != before
        return not self.has_changed and (self._looked is None or self._looked != self._settled)

    def is_still(self) -> bool:
        """Whether it is as the last look found it; else what was read since may be either."""
        return _signature(self.path) == self._looked

    def settle(self) -> None:
        """What the last look found has been taken over."""
        self._settled = self._looked


def _signature(path: Path) -> Signature | None:
    """None where there is no such file, or it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
