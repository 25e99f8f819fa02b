"""What happened, for a person: kept only where somebody will read it."""

from __future__ import annotations

from collections.abc import Sequence


class Transcript:
    """Lines in the order in which things happened."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.lines: list[str] = []

    def note(self, now: float, who: str, words: Sequence[object]) -> None:
        """Somebody has done something."""
        if self.is_kept:
            self.lines.append(f"{now:8.3f}  {who:14}  {' '.join(map(str, words))}")
