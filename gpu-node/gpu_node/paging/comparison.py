"""The whole comparison: every scheme of allocation on one trace, and every way of sharing on its lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gpu_node.paging.beams import beam_search
from gpu_node.paging.contiguous import SCHEMES, ContiguousServer
from gpu_node.paging.paged import PagedServer
from gpu_node.paging.run import SchemeResult, play
from gpu_node.paging.server import Memory, SchemeServer
from gpu_node.paging.sharing import Saving, measure, parallel_sampling
from gpu_node.paging.trace import PagingTrace

NUM_SEQUENCES = (2, 4, 6)
"""Samples of a request, and beams (PagedAttention, §6.3)."""

NUM_PARTS = 1 + len(SCHEMES) + 2 * len(NUM_SEQUENCES)
"""How often every request is played."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out of it; ours is the first of the schemes."""

    schemes: tuple[SchemeResult, ...]
    sharing: tuple[Saving, ...]


def compare(
    trace: PagingTrace, memory: Memory, block_size: int, seed: int, advance: Callable[[int], None]
) -> Comparison:
    """Play the trace `NUM_PARTS` times. ``seed`` is the beams'.

    ``advance`` hears how many requests have been played since it was called last.
    """
    schemes = tuple(play(trace.requests, server, advance) for server in _servers(memory, block_size))
    return Comparison(schemes, tuple(_savings(trace, block_size, seed, advance)))


def _servers(memory: Memory, block_size: int) -> Iterator[SchemeServer]:
    yield PagedServer(memory, block_size)
    for name, reserve in SCHEMES.items():
        yield ContiguousServer(name, reserve, memory)


def _savings(trace: PagingTrace, block_size: int, seed: int, advance: Callable[[int], None]) -> Iterator[Saving]:
    for number in NUM_SEQUENCES:
        samples = partial(parallel_sampling, number)
        yield measure("parallel sampling", number, trace.requests, samples, block_size, advance)
    for number in NUM_SEQUENCES:
        beams = partial(beam_search, number, seed)
        yield measure("beam search", number, trace.requests, beams, block_size, advance)
