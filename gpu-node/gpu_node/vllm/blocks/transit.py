"""Where the KV of a continuation lies between vLLM's workers and the engine's process: a file a rank, in memory.

Only on its way: it is removed when it is taken, and what is left goes with the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FOLDER = "folder"
"""Under which vLLM's processes are told of it."""
KEPT_TOKENS = "treadle_kept_tokens"
"""Under which a request that comes back says of how many tokens there is KV."""


def part_of(folder: Path, core_id: str, rank: int) -> Path:
    """Of one rank."""
    return folder / f"{core_id}.{rank}"


class Transit:
    """Of one running vLLM."""

    def __init__(self, folder: Path, num_ranks: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._num_ranks = num_ranks

    def take(self, core_id: str) -> bytes:
        """What its workers have laid down, rank after rank; ``b""`` where one of them had no room."""
        parts = self._parts(core_id)
        found = [part.read_bytes() for part in parts if part.exists()]
        self.drop([core_id])
        return b"".join(found) if len(found) == len(parts) else b""

    def put(self, core_id: str, content: memoryview) -> bool:
        """Lay down what its workers are to load; False without room, and then nothing lies there."""
        num_bytes = len(content) // self._num_ranks
        try:
            for rank, part in enumerate(self._parts(core_id)):
                part.write_bytes(content[rank * num_bytes : (rank + 1) * num_bytes])
        except OSError:
            self.drop([core_id])
            return False
        return True

    def drop(self, core_ids: Sequence[str]) -> None:
        """Those that will not be loaded any more; what is not there is ignored."""
        for core_id in core_ids:
            for part in self._parts(core_id):
                part.unlink(missing_ok=True)

    def close(self) -> None:
        """All that is left."""
        for part in list(self._folder.iterdir()):
            part.unlink(missing_ok=True)
        self._folder.rmdir()

    def _parts(self, core_id: str) -> list[Path]:
        return [part_of(self._folder, core_id, rank) for rank in range(self._num_ranks)]
