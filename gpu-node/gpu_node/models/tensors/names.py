"""Names of tensors in error messages."""

from __future__ import annotations

from collections.abc import Collection

_NUM_SHOWN = 3


def first_of(names: Collection[str]) -> str:
    """The first few names, and how many there are besides."""
    shown = ", ".join(sorted(names)[:_NUM_SHOWN]) or "none"
    return f"{shown} and {len(names) - _NUM_SHOWN} more" if len(names) > _NUM_SHOWN else shown
