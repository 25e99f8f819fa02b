"""Workloads from files: CSV, gzipped or not, with a line a request.

Columns ``input_tokens`` and ``output_tokens``; ``arrival_s`` where arrivals are known, ``model`` and ``client`` where
there are several.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TextIO

from services.simulator.workloads.arrivals import Mix, poisson
from services.simulator.workloads.request import WorkloadError, WorkloadRequest

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Line:
    """A request as the file has it."""

    arrival_s: float | None
    prompt_tokens: int
    output_tokens: int
    model: str
    client: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a file in their order, those that are too long left out."""

    source: str
    lines: tuple[Line, ...]
    num_too_long: int

    @property
    def has_arrivals(self) -> bool:
        """Whether the file says when requests came."""
        return self.lines[0].arrival_s is not None

    @property
    def models(self) -> list[str]:
        """Names of models in the file, those of most requests first; ``""`` where it has none."""
        counts: dict[str, int] = {}
        for line in self.lines:
            counts[line.model] = counts.get(line.model, 0) + 1
        return sorted(counts, key=lambda name: (-counts[name], name))

    def rate_per_s(self) -> float:
        """Mean rate of arrivals, which the file has."""
        first, last = self.lines[0].arrival_s, self.lines[-1].arrival_s
        assert first is not None
        assert last is not None
        return (len(self.lines) - 1) / (last - first) if last > first else math.inf

    def requests(
        self,
        num_requests: int,
        random: Random,
        *,
        slos: Mix,
        models: Mapping[str, str],
        rate_per_s: float | None,
        first: int = 0,
    ) -> list[WorkloadRequest]:
        """So many requests from line ``first`` on; without arrivals, a random sample, since its order means nothing.

        ``models`` maps names in the file to those that are served. ``rate_per_s`` makes the clock of the file faster or
        slower, so that its bursts stay; a file without arrivals needs it, and gets Poisson ones.
        """
        if not self.has_arrivals:
            if rate_per_s is None:
                raise WorkloadError(f"{self.source} has no arrival_s: a rate is needed")
            lines: Sequence[Line] = random.choices(self.lines, k=num_requests)
            times = poisson(rate_per_s, num_requests, random)
        else:
            lines = self.lines[first : first + num_requests]
            scale = 1.0 if rate_per_s is None else self.rate_per_s() / rate_per_s
            known = [line.arrival_s for line in lines if line.arrival_s is not None]
            times = [(time_s - known[0]) * scale for time_s in known]
        return [
            WorkloadRequest(
                arrival_s=time_s,
                model=models[line.model],
                slo=slos.draw(random),
                prompt_tokens=line.prompt_tokens,
                output_tokens=line.output_tokens,
                tenant=line.client or "default",
            )
            for time_s, line in zip(times, lines, strict=True)
        ]


def read_trace(path: Path, max_tokens: int) -> Trace:
    """All requests of a file with at most ``max_tokens`` in all; `WorkloadError` if it is no trace."""
    lines: list[Line] = []
    num_too_long = 0
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or ()
            if not {"input_tokens", "output_tokens"} <= set(names):
                raise WorkloadError(
                    f"{path}: a trace has columns input_tokens and output_tokens, not {', '.join(names)}"
                )
            for line in _lines(path, reader):
                if line.prompt_tokens + line.output_tokens > max_tokens:
                    num_too_long += 1
                else:
                    lines.append(line)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(f"{path} cannot be read: {error}") from error
    if not lines:
        raise WorkloadError(f"{path} has no request of at most {max_tokens} tokens")
    if lines[0].arrival_s is not None:
        lines.sort(key=lambda line: line.arrival_s or 0.0)
    return Trace(str(path), tuple(lines), num_too_long)


def _lines(path: Path, reader: csv.DictReader[str]) -> Iterator[Line]:
    for row in reader:
        try:
            arrival_s = float(row["arrival_s"]) if "arrival_s" in row else None
            prompt_tokens, output_tokens = int(row["input_tokens"]), int(row["output_tokens"])
        except (TypeError, ValueError) as error:
            raise WorkloadError(f"{path}, line {reader.line_num}: {error}") from error
        if prompt_tokens < 1 or output_tokens < 1 or not math.isfinite(arrival_s or 0.0):
            raise WorkloadError(f"{path}, line {reader.line_num}: a length below 1, or a time that is none")
        yield Line(arrival_s, prompt_tokens, output_tokens, row.get("model") or "", row.get("client") or "")


def _open(path: Path) -> TextIO:
    """The file as text, whatever its name."""
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return io.TextIOWrapper(gzip.open(path) if is_gzip else path.open("rb"), encoding="utf-8", newline="")
