"""Which gateways' processes have stopped showing that they live. Pure: a look is one message, and looks are counted.

Looks and not seconds: where Redis is away no process can show a sign, and none can look.
"""

from __future__ import annotations

from collections.abc import Mapping

MISSED_LOOKS = 5
"""Looks in a row at which a process has shown nothing new: it is taken for dead."""


class MissedSigns:
    """What one process has seen of the others."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._seen: dict[str, tuple[str, int]] = {}

    def look(self, signs: Mapping[str, str]) -> list[tuple[str, str]]:
        """``signs``: by process, what each has shown last. Those that are dead, with that."""
        seen: dict[str, tuple[str, int]] = {}
        for process, sign in signs.items():
            before, num_missed = self._seen.get(process, ("", 0))
            if process != self._own:
                seen[process] = (sign, num_missed + 1 if sign == before else 0)
        self._seen = seen
        return [(process, sign) for process, (sign, num_missed) in seen.items() if num_missed >= MISSED_LOOKS]
