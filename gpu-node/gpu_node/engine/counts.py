"""What the schedulers of an engine have done so far, for those who watch it; nothing is decided by it."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted since the engine process began, over all its models."""

    num_preemptions: int = 0
    """Requests that gave way inside the engine because memory ran out."""
    prefix_queried_tokens: int = 0
    """Tokens of admitted requests that were looked up among cached prefixes; again when they are admitted again."""
    prefix_cached_tokens: int = 0
    """Those of them that were found, and not computed."""
    restored_tokens: int = 0
    """Tokens whose KV came back from the image of an evicted request: the work that evicting with KV has saved."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(one - less for one, less in zip(astuple(self), astuple(other), strict=True)))
