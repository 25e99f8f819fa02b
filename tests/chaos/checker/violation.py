"""What a checker finds."""

from __future__ import annotations

import msgspec

INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8")


class Violation(msgspec.Struct, frozen=True):
    """One promise that was broken, with the evidence."""

    invariant: str
    what: str
    at_s: float = 0.0
