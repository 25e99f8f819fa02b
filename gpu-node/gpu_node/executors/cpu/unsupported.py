"""What the CPU device cannot compute."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind


class UnsupportedOperatorError(ValueError):
    """The CPU device has no kernel for a kind of operator."""

    def __init__(self, kind: OperatorKind, what: str = "") -> None:
        super().__init__(f"the cpu executor has no kernel for {kind.value!r}{what}; the reference executor has")
