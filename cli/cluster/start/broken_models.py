"""Models that nodes cannot load: whether another node still may, or a start has come to its end. No I/O.

A model may be too large for one kind of device and fit on another: then it is served there, and the start goes on.
Nodes of one kind fail alike, so no node has to try what another of its kind could not do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping


class BrokenModels:
    """What the nodes of one start have said so far."""

    def __init__(self, kinds: Mapping[str, Hashable]) -> None:
        """``kinds``: of each node, what decides which models fit."""
        self._kinds = kinds
        self._reasons: dict[str, dict[str, str]] = {}

    def note(self, node: str, reasons: Mapping[str, str]) -> None:
        """What the node says now: why it cannot load a model, by model."""
        for model, reason in reasons.items():
            self._reasons.setdefault(model, {})[node] = reason

    def hopeless(self) -> dict[str, str]:
        """By node, why it cannot load a model that no node can: the first of each model."""
        found: dict[str, str] = {}
        for reasons in self._reasons.values():
            if {self._kinds[node] for node in reasons} == set(self._kinds.values()):
                node, reason = next(iter(reasons.items()))
                found[node] = f"{found[node]}; {reason}" if node in found else reason
        return found
