"""A bound on the label values that a process's metrics tell apart; all further ones are counted together."""

from __future__ import annotations

MAX_LABEL_SETS = 1_000  # a series costs the process some kB, and Prometheus as much in every scrape
OTHER = "other"


class LabelCap:
    """Remembers the first `MAX_LABEL_SETS` sets of label values that it is shown."""

    def __init__(self, max_sets: int = MAX_LABEL_SETS) -> None:
        self._max_sets = max_sets
        self._known: dict[tuple[str, ...], None] = {}

    @property
    def known(self) -> list[tuple[str, ...]]:
        """Those that it has been shown and tells apart, in the order in which they came."""
        return list(self._known)

    def capped(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The values themselves while they are among the first; ``other`` for each of them afterwards."""
        if labels in self._known:
            return labels
        if len(self._known) >= self._max_sets:
            return (OTHER,) * len(labels)
        self._known[labels] = None
        return labels
