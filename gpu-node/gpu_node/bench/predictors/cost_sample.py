"""What a cost was measured as: what the process that measures says, and the one that fits models reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CostKind = Literal["prompt", "chunk", "move_out", "move_in", "store_out", "store_in"]
"""The last two are between host memory and an SSD."""
KINDS: tuple[CostKind, ...] = ("prompt", "chunk", "move_out", "move_in")
STORE_KINDS: tuple[CostKind, ...] = ("store_out", "store_in")


@dataclass(frozen=True, slots=True)
class CostSample:
    """The median of some measurements of one size."""

    kind: CostKind
    size: int
    """Tokens of a prompt, or blocks."""
    seconds: float
    spread: float
    """Median of |measured / seconds - 1|: no predictor can be held to less."""
    is_held_out: bool
    batch: int = 1
    """Prompts of this size that were computed together."""
