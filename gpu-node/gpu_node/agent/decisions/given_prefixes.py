"""Bounds of what a node lets others read of its cache, live and simulated."""

from __future__ import annotations

MAX_ASKS = 4
"""That the engine is busy with at a time: each copy stops its steps. A node that asks beyond computes."""

COPY_S = 2.0
"""For the engine's answer: it comes between two steps, and a node that asks waits no longer."""

HOLD_S = 10.0
"""A copy that is not fetched by then will not be: the node that asked fetches at once."""
