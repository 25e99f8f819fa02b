"""Who is alive, by who was heard. Part of a core's state: time comes in as an argument."""

from __future__ import annotations

import msgspec

QUIET_SHARE = 0.5  # of the timeout: when no node at all was heard for so long, signs of life do not get through


class Liveness(msgspec.Struct):
    """Names and when they were last heard. A name that is silent for ``timeout_s`` is dead.

    When *all* have been silent for a while, the fault is more likely in between (Redis was away): none is buried
    then, and all get one more timeout. So they do when the first is heard again: the others are about to be.
    """

    timeout_s: float
    heard_s: dict[str, float] = {}
    second_chance: bool = False

    @property
    def wake_at(self) -> float | None:
        """When the one that was silent longest counts as dead."""
        return min(self.heard_s.values()) + self.timeout_s if self.heard_s else None

    def hear(self, name: str, now: float) -> None:
        """A sign of life."""
        if self._is_quiet(now):
            self.heard_s = dict.fromkeys(self.heard_s, now)
        self.heard_s[name] = now
        self.second_chance = False

    def forget(self, name: str) -> None:
        """Said goodbye, or was declared dead otherwise."""
        self.heard_s.pop(name, None)

    def expire(self, now: float) -> list[str]:
        """Those that are dead now; they are forgotten."""
        silent = [name for name, heard in self.heard_s.items() if now >= heard + self.timeout_s]
        if silent and self._is_quiet(now) and not self.second_chance:
            self.second_chance = True
            self.heard_s = dict.fromkeys(self.heard_s, now)
            return []
        for name in silent:
            del self.heard_s[name]
        return silent

    def _is_quiet(self, now: float) -> bool:
        """None at all was heard of late."""
        return now - max(self.heard_s.values(), default=now) >= QUIET_SHARE * self.timeout_s
