"""Requests as lengths: how many tokens come in and go out, and when. Read from a CSV file, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from gpu_node.executors.counter import uniform

_GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ValueError):
    """The file is no trace, or has nothing that fits; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace; both lengths are at least 1."""

    input_tokens: int
    output_tokens: int
    arrival_s: float = 0.0

    @property
    def num_slots(self) -> int:
        """KV slots that it holds at its end; the token drawn last is never computed."""
        return self.input_tokens + self.output_tokens - 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of arrival, and how many in the whole source are too long to be among them."""

    requests: tuple[Request, ...]
    num_too_long: int
    has_arrivals: bool

    def drawn(self, rate_per_s: float, seed: int) -> Trace:
        """The same requests with Poisson arrivals: times between them are exponential."""
        now = 0.0
        requests = []
        for number, request in enumerate(self.requests):
            now -= math.log(1.0 - uniform(seed, number)) / rate_per_s
            requests.append(replace(request, arrival_s=now))
        return Trace(tuple(requests), self.num_too_long, has_arrivals=True)


def read_trace(path: Path, max_tokens: int, num_requests: int, seed: int) -> Trace:
    """``num_requests`` of a file, of those with at most ``max_tokens`` of input and output together.

    Columns ``input_tokens``, ``output_tokens`` and, if arrivals are known, ``arrival_s``; others are ignored. With
    arrivals it is the first ones, beginning at 0; without them a random sample, since the order means nothing then.
    """
    requests: list[Request] = []
    num_too_long = 0
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or ()
            if not {"input_tokens", "output_tokens"} <= set(names):
                raise TraceError(f"{path}: a trace has columns input_tokens and output_tokens, not {', '.join(names)}")
            for request in _requests(path, reader):
                if request.input_tokens + request.output_tokens > max_tokens:
                    num_too_long += 1
                else:
                    requests.append(request)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not requests:
        raise TraceError(f"{path} has no request of at most {max_tokens} tokens")
    if "arrival_s" not in names:
        order = sorted(range(len(requests)), key=lambda number: uniform(seed, number))
        return Trace(tuple(requests[number] for number in order[:num_requests]), num_too_long, has_arrivals=False)
    requests.sort(key=lambda request: request.arrival_s)
    began_s = requests[0].arrival_s
    kept = tuple(replace(request, arrival_s=request.arrival_s - began_s) for request in requests[:num_requests])
    return Trace(kept, num_too_long, has_arrivals=True)


def _requests(path: Path, reader: csv.DictReader[str]) -> Iterator[Request]:
    for row in reader:
        try:
            arrival_s = float(row.get("arrival_s", "0"))
            request = Request(int(row["input_tokens"]), int(row["output_tokens"]), arrival_s)
        except (TypeError, ValueError) as error:
            raise TraceError(f"{path}, line {reader.line_num}: {error}") from error
        if request.input_tokens < 1 or request.output_tokens < 1 or not math.isfinite(arrival_s):
            raise TraceError(f"{path}, line {reader.line_num}: a length below 1, or a time that is none")
        yield request


def _open(path: Path) -> TextIO:
    """The file as text, whatever its name."""
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return io.TextIOWrapper(gzip.open(path) if is_gzip else path.open("rb"), encoding="utf-8", newline="")
