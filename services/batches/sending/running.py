"""What is open of a batch that runs: its input, its results, and the requests that are out."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from services.batches.intake.lines import InputLine, InputLines, read_request
from services.batches.store.result_files import ResultFiles


class RunningBatch:
    """Of one batch."""

    def __init__(self, lines: InputLines, results: ResultFiles, input_path: Path) -> None:
        self.results = results
        self.out: dict[int, asyncio.Task[None]] = {}
        """A task for each request that is out."""
        self._lines = lines
        self._input = os.open(input_path, os.O_RDONLY)

    def request(self, number: int) -> InputLine:
        """Read from the input file, which does not change."""
        return read_request(os.pread(self._input, self._lines.lengths[number], self._lines.begins[number]))

    def call_back(self, but: int | None = None) -> None:
        """Stop waiting for all requests that are out, ``but`` for one."""
        for number, task in self.out.items():
            if number != but:
                task.cancel()

    def close(self) -> None:
        """Nothing is read any more."""
        os.close(self._input)
