"""Prompts in which there are no images."""

from __future__ import annotations

from gateway.models.models import ServedModel
from gateway.tenants.turn_threads import TenantThreads
from shared.messages.requests.pictures import Picture


class TextOnly:
    """Of an `Endpoint`."""

    async def pictures(
        self,
        body: object,  # noqa: ARG002
        model: ServedModel,  # noqa: ARG002
        able: list[str],  # noqa: ARG002
        threads: TenantThreads,  # noqa: ARG002
    ) -> list[Picture]:
        """None, ever."""
        return []
