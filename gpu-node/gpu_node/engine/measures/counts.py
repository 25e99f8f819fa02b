"""What the schedulers of an engine have done so far, for those that watch it; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import add, attrgetter, sub
from typing import Any, Self

_getters: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _values_of(sums: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Of all fields, two at least: sums are made each step, so the names are looked up once."""
    kind = type(sums)
    if kind not in _getters:
        _getters[kind] = attrgetter(*(one.name for one in fields(kind)))
    return _getters[kind]


@dataclass(frozen=True, slots=True)
class _Sums:
    def __add__(self, other: Self) -> Self:
        values = _values_of(self)
        return type(self)(*map(add, values(self), values(other)))

    def __sub__(self, other: Self) -> Self:
        values = _values_of(self)
        return type(self)(*map(sub, values(self), values(other)))


@dataclass(frozen=True, slots=True)
class TierCounts(_Sums):
    """KV that was offloaded to host memory, for one reason."""

    out_bytes: int = 0
    """From the device."""
    in_bytes: int = 0
    """Back to it; what the device still had is not moved again."""
    num_restored: int = 0
    """Requests that went on with it."""
    num_refused: int = 0
    """Requests whose KV was dropped, because host memory had no room."""


@dataclass(frozen=True, slots=True)
class KeptCounts(_Sums):
    """Full blocks that were copied to the tiers below the device, and what was found there."""

    host_tokens: int = 0
    """Tokens of cached prefixes that came back from host memory."""
    store_tokens: int = 0
    """Those that had come to host memory from the store, for the request that they came back for."""
    num_lost_blocks: int = 0
    """Full blocks of which there is no copy in host memory: it had no room, or the device had given them up."""
    num_written: int = 0
    """Blocks that the store has."""
    num_read: int = 0
    """Blocks that came back from it."""
    num_unwritten: int = 0
    """Blocks that were not written: too many were waiting, or there was no room."""
    num_failed: int = 0
    """Reads and writes that the system refused."""
    num_damaged: int = 0
    """Blocks that were not what had been written."""
    num_late: int = 0
    """Requests that began without what the store has of them, because it was too slow."""


@dataclass(frozen=True, slots=True)
class Counts(_Sums):
    """Counted since the engine process began, over all its models."""

    num_preemptions: int = 0
    """Requests that gave way inside the engine because memory ran out."""
    prefix_queried_tokens: int = 0
    """Tokens of admitted requests that were looked up among cached prefixes; again when they are admitted again."""
    prefix_cached_tokens: int = 0
    """Those of them that were found, and not computed."""
    first_queried_tokens: int = 0
    """Those of requests that have no output yet: their prompts."""
    first_cached_tokens: int = 0
    """Of these, those that were found."""
    restored_tokens: int = 0
    """Tokens whose KV came back from the image of an evicted request: the work that evicting with KV has saved."""
    num_recomputed: int = 0
    """Requests that had begun, here or elsewhere, and had to go on without their KV."""
    swapped: TierCounts = TierCounts()
    """Of preempted requests."""
    evicted: TierCounts = TierCounts()
    """Of those that gave way to more urgent ones, or were handed over."""
    num_piped: int = 0
    """Steps that went through a pipeline."""
    num_small: int = 0
    """Steps that were too small for their model's pipeline, and went without."""
    num_unknown: int = 0
    """Steps for which a pipeline was to be chosen, and nothing is known of any."""
    num_served_tasks: int = 0
    """Attention of other engines that was done here, a layer of a step each."""
    num_lost_remote: int = 0
    """Requests that were computed again because a receiver lost them."""
    num_draft_tokens: int = 0
    """Tokens that were guessed and computed; those that came too late to be asked about are left out."""
    num_accepted_tokens: int = 0
    """Of these, those that were drawn and kept."""
    num_structured_drafts: int = 0
    """Of ``num_draft_tokens``, those of structured output."""
    num_structured_accepted: int = 0
    """Of these, those that were drawn and kept."""
    kept: KeptCounts = KeptCounts()
    """Of full blocks below the device."""


class SumOfCounts:
    """A sum that is asked for after each step and changes with few of them: made again when a part has changed."""

    def __init__(self) -> None:
        self._parts: tuple[Counts, ...] = ()
        self._sum = Counts()

    def of(self, *parts: Counts) -> Counts:
        """All parts together."""
        if parts != self._parts:
            self._parts, self._sum = parts, sum(parts, Counts())
        return self._sum


def looked_up(num_tokens: int, num_cached_tokens: int, *, is_prompt: bool) -> Counts:
    """So many tokens of a request that is admitted were looked up among cached prefixes, and so many found.

    ``is_prompt``: it has no output yet.
    """
    first = (num_tokens, num_cached_tokens) if is_prompt else (0, 0)
    return Counts(
        prefix_queried_tokens=num_tokens,
        prefix_cached_tokens=num_cached_tokens,
        first_queried_tokens=first[0],
        first_cached_tokens=first[1],
    )
