"""Requests that rest on nothing that was kept here."""

from __future__ import annotations

from contextlib import ExitStack

from aiohttp import web


class SelfContained:
    """Of an `Endpoint`."""

    async def recalled(self, http: web.Request, body: object, room: ExitStack) -> None:  # noqa: ARG002
        """Nothing is to be found."""
        return
