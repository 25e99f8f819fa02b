"""What the schedulers of an engine have done so far, for those who watch it; nothing is decided by it."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
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
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) - getattr(other, name) for name in self.__struct_fields__))
