"""How many pages of a device's KV memory could be lent, and how many that are lent its own requests need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KEPT_REQUESTS = 1
"""Typical ones that a receiver keeps room for beside those that it has: with less, pages are missing."""
SPARED_REQUESTS = 2
"""That it keeps room for when it lends: one more, so that a request that begins calls nothing back at once."""


@dataclass(frozen=True, slots=True)
class PageNeed:
    """Of one model that is loaded."""

    num_taken: int
    """Pages in which sequences hold blocks, or that the model has a right to."""
    num_kept: int
    """That it is expected to come to, with `KEPT_REQUESTS` typical requests more."""
    num_spared: int
    """With `SPARED_REQUESTS` more."""


@dataclass(frozen=True, slots=True)
class LendableRoom:
    """What an engine tells of its pages."""

    page_bytes: int = 0
    """0 where it lends none."""
    num_spare: int = 0
    """That could be lent beside those that are."""
    num_missing: int = 0
    """Of those that are lent, what its own requests need."""


NO_ROOM = LendableRoom()
"""Of an engine that has no links, or no model yet: it is unknown what its first one will need."""


def lendable_room(page_bytes: int, num_pages: int, num_lent: int, needs: Iterable[PageNeed]) -> LendableRoom:
    """Of an arena of ``num_pages``."""
    needs = list(needs)
    num_kept = sum(max(need.num_taken, need.num_kept) for need in needs)
    num_spared = sum(max(need.num_taken, need.num_spared) for need in needs)
    return LendableRoom(
        page_bytes,
        num_spare=max(0, num_pages - num_lent - num_spared),
        num_missing=min(num_lent, max(0, num_kept + num_lent - num_pages)),
    )
