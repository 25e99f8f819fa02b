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
    """Where commands begin, and last of all where the last whole one ends; ``start`` is one of them.

    The server may have been killed in the midst of a write: what follows is no command.
    """
    starts = [start]
    while (end := command_end(data, starts[-1])) is not None:
        starts.append(end)
    return starts


def command_end(data: bytes, start: int) -> int | None:
    """Where a command ends; None where the file ends before."""
    position, num_lines = start, 1
    while num_lines:
        end = data.find(b"\r\n", position)
        if end < 0:
            return None
        length = int(data[position + 1 : end])
        if data[position : position + 1] == b"*":
            num_lines = length
            position = end + 2
        else:
            num_lines -= 1
            position = end + 2 + length + 2
    return position if position <= len(data) else None
