"""I4: 15 s after the load has stopped, gateway, queue manager, nodes and pending lists agree: there is nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.violation import Violation
from tests.chaos.history import History

KEYS = "keys"


def check(history: History) -> Iterator[Violation]:
    """What somebody still believes to be there."""
    for left in history.leftovers:
        if left.where != KEYS:
            yield Violation("I4", f"{left.where} still has: {left.what}", left.at_s)
