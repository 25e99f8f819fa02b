"""The wall clock of Redis, which a fault may set: a preloaded library adds an offset that lies in a file."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_OFFSET = struct.Struct("q")


class SetClock:
    """The library and the file with its offset; ``why_not`` says what is missing where it cannot be built."""

    def __init__(self, folder: Path) -> None:
        library, self._path = folder / "clock.so", folder / "clock"
        self.environment: dict[str, str] = {}
        self.why_not = "" if shutil.which("gcc") else "there is no gcc to build the clock's library with"
        self._path.write_bytes(_OFFSET.pack(0))
        self._file = self._path.open("r+b")
        self._mapped = mmap.mmap(self._file.fileno(), _OFFSET.size)
        if not self.why_not:
            source = Path(__file__).with_name("clock.c")
            subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
            self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._path)}

    def set(self, offset_s: float) -> None:
        """At once, for every process that has it mapped."""
        self._mapped[:] = _OFFSET.pack(int(offset_s * 1e6))

    def close(self) -> None:
        """Nobody sets it any more."""
        self._mapped.close()
        self._file.close()
