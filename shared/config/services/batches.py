"""Batches of requests in files: whether clients may send them, where they lie, and how much of them is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from shared.config.section import Section

DAY_S = 86_400


class BatchOptions(Section):
    """Files and batches, as OpenAI's API has them; a service of its own has them in a folder."""

    enabled: bool = False
    """Run that service; without it gateways answer 404 to files and batches."""
    folder: Path | None = None
    """Where files and batches lie, on a disk that outlives the process; without it in ``data_dir``. One process at a
    time uses it."""
    url: str | None = None
    """Where gateways find the service; without it at its admin port on this machine."""
    gateway_url: str | None = None
    """Where it finds gateways, any of them; without it at ``gateway.port`` on this machine."""
    max_inflight: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Requests of all batches that are sent and not answered, at a time. As many as the nodes run together keep them
    busy; a few times as many let the queue choose."""
    max_file_bytes: Annotated[int, Field(ge=1024)] = 200 << 20
    """Largest file that is taken."""
    max_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """Most requests of a batch."""
    max_tenant_bytes: Annotated[int, Field(ge=1024)] = 4 << 30
    """What files of one tenant may take on the disk, results included; who has as much can send no more."""
    keep_s: Annotated[int, Field(ge=3600, le=366 * DAY_S)] = 30 * DAY_S
    """How long batches and their results are kept; files of clients are, where they name no other time, until they are
    deleted."""

    @field_validator("url", "gateway_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("an address begins with http:// or https://")
        return url.rstrip("/") if url is not None else None
