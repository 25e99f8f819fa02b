"""A disk of a few MB for Redis, so that it can be full without filling anybody else's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DISK_BYTES = 256 << 20  # a run of ten minutes writes 40 MB
_STEP_BYTES = 1 << 20


class SmallDisk:
    """A file system of its own, where this process may make one; else ``why_not`` says what is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ballast = folder / "ballast"
        self.why_not = ""
        if os.geteuid() != 0:
            self.why_not = "only root may mount a file system of its own"
            return
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "chaos", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.why_not = f"mount failed: {done.stderr.strip()}"

    def fill(self) -> None:
        """Until not a byte is left."""
        with self._ballast.open("wb", buffering=0) as file:
            step = _STEP_BYTES
            while step:
                try:
                    file.write(bytes(step))
                except OSError:
                    step //= 2

    def relieve(self) -> None:
        """As an operator does."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Gone with all that is on it."""
        if not self.why_not:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=True)
