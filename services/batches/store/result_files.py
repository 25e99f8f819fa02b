"""Results of a batch that runs: two files that lines are appended to, each whole or not at all.

What was written when the process died is there at the next start; a line that was cut by the crash of a machine is
dropped, and its request sent again. Where the disk is full, lines wait in memory, as many as requests are out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from services.batches.records.answer_line import count_unanswered, read_numbers
from services.batches.records.usage import usage_of
from services.batches.store.folder import sync_file
from shared.messages.batches.batch_lines import CANCELLED, EXPIRED
from shared.messages.batches.batches import BatchCounts, BatchUsage

OUTPUT, ERRORS = "output.jsonl", "errors.jsonl"


class ResultFiles:
    """The two files of one batch."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / OUTPUT
        self.errors = folder / ERRORS
        self._waiting: list[tuple[Path, bytes]] = []

    @property
    def num_waiting(self) -> int:
        """Lines that could not be written yet."""
        return len(self._waiting)

    def settled(self) -> Iterator[tuple[int, bool]]:
        """Numbers of requests that have a line, with whether it is an answer; a line that was cut is dropped."""
        for path, is_output in ((self.output, True), (self.errors, False)):
            if path.exists():
                _drop_cut_line(path)
                with path.open("rb") as file:
                    yield from ((number, is_output) for number in read_numbers(file))

    def append(self, lines: bytes, *, is_output: bool) -> None:
        """To be written behind those that wait, by `write_waiting`."""
        self._waiting.append((self.output if is_output else self.errors, lines))

    def write_waiting(self) -> None:
        """Write what waits; OSError with what could not be written still waiting."""
        while self._waiting:
            path, lines = self._waiting[0]
            _append_whole(path, lines)
            del self._waiting[0]

    def usage(self) -> BatchUsage:
        """Tokens of all answers."""
        if not self.output.exists():
            return BatchUsage()
        with self.output.open("rb") as file:
            return usage_of(file)

    def counted(self, counts: BatchCounts) -> BatchCounts:
        """With how many of the failed have no answer, and why: also those whose lines an earlier life wrote."""
        if not self.errors.exists():
            return counts
        with self.errors.open("rb") as file:
            unanswered = count_unanswered(file)
        return msgspec.structs.replace(counts, cancelled=unanswered[CANCELLED], expired=unanswered[EXPIRED])

    def sync(self) -> None:
        """What was written outlives a crash of the machine."""
        for path in (self.output, self.errors):
            if path.exists():
                sync_file(path)


def _append_whole(path: Path, lines: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            left = memoryview(lines)
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(size)
            raise


def _drop_cut_line(path: Path) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end:
            begin = max(0, end - 65_536)
            file.seek(begin)
            place = file.read(end - begin).rfind(b"\n")
            if place >= 0:
                end = begin + place + 1
                break
            end = begin
        if end != size:
            file.truncate(end)
