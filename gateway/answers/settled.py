"""Answers that leave nothing behind."""

from __future__ import annotations


class Settled:
    """Of a `Renderer`."""

    async def settle(self) -> None:
        """Nothing is to be done before the end."""
        return
