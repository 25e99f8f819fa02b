"""Tokens that have a meaning and no text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ControlToken:
    """A token that has a meaning and no text."""

    id: int
    lstrip: bool = False
    """White space before it in a prompt belongs to it."""
    rstrip: bool = False
    """White space after it belongs to it."""
