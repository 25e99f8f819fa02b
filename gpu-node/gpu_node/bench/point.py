"""A point of a benchmark: requests of one shape that are all there from the start."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared.errors import OperatorError

MAX_POINTS = 64
MAX_REQUESTS = 4096
MAX_TOKENS = 1 << 20
_PATTERN = re.compile(r"(\d+)x(\d+)x(\d+)")


class PointError(OperatorError, ValueError):
    """A point that cannot be measured; the text says what one looks like."""


@dataclass(frozen=True, slots=True)
class BenchPoint:
    """Greedy requests of equal length, which run to their last token."""

    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int

    def __str__(self) -> str:
        return f"{self.num_requests}x{self.num_prompt_tokens}x{self.num_output_tokens}"

    @property
    def num_tokens(self) -> int:
        """Of one request, prompt and output together."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_rows(self) -> int:
        """Tokens that all requests compute together if none is preempted; the last one drawn never is computed."""
        return self.num_requests * (self.num_tokens - 1)


def parse_points(text: str) -> tuple[BenchPoint, ...]:
    """``REQUESTSxPROMPTxOUTPUT``, several with commas between; `PointError` for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_POINTS:
        raise PointError(f"{len(parts)} points are too many; {MAX_POINTS} can be measured at a time")
    return tuple(map(_point, parts))


def _point(text: str) -> BenchPoint:
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise PointError(f"{text!r} is no point: write REQUESTSxPROMPTxOUTPUT in tokens, such as 8x128x128")
    point = BenchPoint(*map(int, found.groups()))
    if not 1 <= point.num_requests <= MAX_REQUESTS:
        raise PointError(f"{text}: from 1 to {MAX_REQUESTS} requests can be measured")
    if min(point.num_prompt_tokens, point.num_output_tokens) < 1 or point.num_tokens > MAX_TOKENS:
        raise PointError(f"{text}: prompt and output have 1 token at least, and {MAX_TOKENS} at most together")
    return point
