"""Requests as lengths: how many tokens come in and go out, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_node.executors.draws.counter import uniform
from shared.files.length_trace import read_lengths


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace; both lengths are at least 1."""

    input_tokens: int
    output_tokens: int
    arrival_s: float = 0.0

    @property
    def num_slots(self) -> int:
        """KV slots that it holds at its end; the token drawn last is never computed."""
        return self.input_tokens + self.output_tokens - 1


@dataclass(frozen=True, slots=True)
class PagingTrace:
    """Requests in the order of arrival, and how many in the whole source are too long to be among them."""

    requests: tuple[TraceRequest, ...]
    num_too_long: int
    has_arrivals: bool

    def drawn(self, rate_per_s: float, seed: int) -> PagingTrace:
        """The same requests with Poisson arrivals: times between them are exponential."""
        now = 0.0
        requests = []
        for number, request in enumerate(self.requests):
            now -= math.log(1.0 - uniform(seed, number)) / rate_per_s
            requests.append(replace(request, arrival_s=now))
        return PagingTrace(tuple(requests), self.num_too_long, has_arrivals=True)


def read_trace(path: Path, max_tokens: int, num_requests: int, seed: int) -> PagingTrace:
    """``num_requests`` of a file, of those with at most ``max_tokens`` of input and output together.

    With arrivals the first ones, beginning at 0; without them a random sample, since the order means nothing then.
    Raises `shared.files.length_trace.TraceError` if the file is no trace.
    """
    found = read_lengths(path, max_tokens)
    began_s = found.lines[0].arrival_s or 0.0
    requests = [
        TraceRequest(
            line.input_tokens, line.output_tokens, line.arrival_s - began_s if line.arrival_s is not None else 0.0
        )
        for line in found.lines
    ]
    if not found.has_arrivals:
        order = sorted(range(len(requests)), key=lambda number: uniform(seed, number))
        requests = [requests[number] for number in order]
    return PagingTrace(tuple(requests[:num_requests]), found.num_too_long, found.has_arrivals)
