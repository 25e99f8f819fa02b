"""Which place an adapter gets that waits for one, where fewer compute in a step than are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NONE = 0
"""No adapter's number."""


def tokens_left(running: Iterable[tuple[int, int]]) -> dict[int, int]:
    """By adapter that has a place, the most tokens that one of its requests may have yet.

    ``running``: the adapter of each request that runs, or `NONE`, and how many tokens it may have yet.
    """
    left: dict[int, int] = {}
    for adapter, num_tokens in running:
        if adapter != NONE:
            left[adapter] = max(num_tokens, left.get(adapter, 0))
    return left


def closing(left: Mapping[int, int], num_places: int) -> int:
    """The adapter that is to begin no more requests behind one that waits for a place, so that its own becomes free.

    `NONE` where a place is free. vLLM by itself lets more begin of those that have a place, for as long as any come.
    """
    return min(left, key=lambda one: (left[one], one)) if len(left) >= num_places else NONE
