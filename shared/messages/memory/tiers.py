"""What has appeared in the tiers of a node, and gone; in the standard library alone: engines import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Tier(IntEnum):
    """Where a block is, nearest first; as bits of a set."""

    DEVICE = 1
    HOST = 2
    SSD = 4


@dataclass(frozen=True, slots=True)
class TierNews:
    """What has appeared in one tier of a node, and gone from it, by name (`shared.messages.prefixes.prefixes`)."""

    tier: int
    """A `Tier`."""
    came: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
