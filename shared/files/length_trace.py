"""Requests as lengths, from a CSV file, gzipped or not: how many tokens come in and go out, and when.

Columns ``input_tokens`` and ``output_tokens``; ``arrival_s`` where arrivals are known, ``model`` and ``client`` where
there are several; ``hash_ids`` where contents are: a number for each `HASH_TOKENS` tokens of the input, the last ones
too, with spaces between; equal numbers are equal tokens. Others are ignored.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

HASH_TOKENS = 512
"""Tokens that one of ``hash_ids`` stands for (Mooncake, FAST'25)."""

MAX_HASH_ID = 1 << 32
"""They stand for tokens, which have 32 bits."""
_GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ValueError):
    """The file is no trace, or has nothing that fits; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One request as the file has it; both lengths are at least 1."""

    input_tokens: int
    output_tokens: int
    arrival_s: float | None
    model: str
    client: str
    hash_ids: tuple[int, ...] = ()
    """Empty where contents are not known."""


@dataclass(frozen=True, slots=True)
class LengthTrace:
    """Requests in the order of arrival, or without arrivals in that of the file."""

    lines: tuple[TraceLine, ...]
    """One at least."""
    num_too_long: int
    """Of the file, left out."""

    @property
    def has_arrivals(self) -> bool:
        """Whether the file says when requests came."""
        return self.lines[0].arrival_s is not None


def read_lengths(path: Path, max_tokens: int) -> LengthTrace:
    """All requests of a file with at most ``max_tokens`` in and out together; `TraceError` if it is no trace."""
    lines: list[TraceLine] = []
    num_too_long = 0
    try:
        with _open(path) as file:
            for line in _lines(path, csv.DictReader(file)):
                if line.input_tokens + line.output_tokens > max_tokens:
                    num_too_long += 1
                else:
                    lines.append(line)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not lines:
        raise TraceError(f"{path} has no request of at most {max_tokens} tokens")
    lines.sort(key=lambda line: line.arrival_s or 0.0)
    return LengthTrace(tuple(lines), num_too_long)


def _lines(path: Path, reader: csv.DictReader[str]) -> Iterator[TraceLine]:
    names = reader.fieldnames or ()
    if not {"input_tokens", "output_tokens"} <= set(names):
        raise TraceError(f"{path}: a trace has columns input_tokens and output_tokens, not {', '.join(names)}")
    for row in reader:
        try:
            arrival_s = float(row["arrival_s"]) if "arrival_s" in row else None
            input_tokens, output_tokens = int(row["input_tokens"]), int(row["output_tokens"])
        except (TypeError, ValueError) as error:
            raise TraceError(f"{path}, line {reader.line_num}: {error}") from error
        if input_tokens < 1 or output_tokens < 1 or not math.isfinite(arrival_s or 0.0):
            raise TraceError(f"{path}, line {reader.line_num}: a length below 1, or a time that is none")
        hash_ids = _hash_ids(row.get("hash_ids") or "", input_tokens)
        if hash_ids is None:
            num_ids = -(-input_tokens // HASH_TOKENS)
            wanted = f"{num_ids} numbers from 0 on, one for each {HASH_TOKENS} tokens of the input"
            raise TraceError(f"{path}, line {reader.line_num}: hash_ids shall be {wanted}")
        model, client = row.get("model") or "", row.get("client") or ""
        yield TraceLine(input_tokens, output_tokens, arrival_s, model, client, hash_ids)


def _hash_ids(text: str, input_tokens: int) -> tuple[int, ...] | None:
    """None where they are not what they should be; a file may be without, or a line of it."""
    if not text:
        return ()
    try:
        found = tuple(map(int, text.split()))
    except ValueError:
        return None
    is_whole = len(found) == -(-input_tokens // HASH_TOKENS)
    return found if is_whole and min(found) >= 0 and max(found) < MAX_HASH_ID else None


def _open(path: Path) -> TextIO:
    """The file as text, whatever its name."""
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return io.TextIOWrapper(gzip.open(path) if is_gzip else path.open("rb"), encoding="utf-8", newline="")
