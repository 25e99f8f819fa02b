"""Redis's append-only file, cut somewhere: so it is after a loss of power, or on a replica that is behind."""

from __future__ import annotations

from pathlib import Path
from random import Random

MAX_LOST = 200  # commands; half of what is written between two cuts


class LogFile:
    """The file that a server writes to. Cut it while the server is down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appendonlydir"
        self._sound = 0
        """Where a command begins, as far as that is known."""

    def cut(self, chance: Random) -> int:
        """Lose up to MAX_LOST commands, and half of the next one now and then; answers how many are gone."""
        path = max(self._folder.glob("*.incr.aof"), key=lambda file: int(file.name.split(".")[-3]))
        data = path.read_bytes()
        starts = command_starts(data, self._sound)
        num_lost = min(chance.randint(0, MAX_LOST), len(starts) - 1)
        end = starts[-1 - num_lost]
        next_end = starts[-num_lost] if num_lost else end
        torn = chance.randint(end, next_end - 1) if next_end > end and chance.random() < 0.5 else end
        with path.open("r+b") as file:
            file.truncate(torn)
        self._sound = starts[max(0, len(starts) - 1 - 2 * MAX_LOST)]
        return num_lost


def command_starts(data: bytes, start: int) -> list[int]:
    """Where commands begin, and last of all where the file ends. ``start`` is one of them."""
    starts = [start]
    position = start
    while position < len(data):
        end = data.index(b"\r\n", position)
        num_words = int(data[position + 1 : end])
        position = end + 2
        for _ in range(num_words):
            end = data.index(b"\r\n", position)
            position = end + 2 + int(data[position + 1 : end]) + 2
        starts.append(position)
    return starts
