"""Prompts in which there are no images."""

from __future__ import annotations

from gateway.models.models import ServedModel
from shared.messages.requests.pictures import Picture


class TextOnly:
    """Of an `Endpoint`."""

    async def pictures(self, body: object, model: ServedModel, able: list[str]) -> list[Picture]:  # noqa: ARG002
        """None, ever."""
        return []
