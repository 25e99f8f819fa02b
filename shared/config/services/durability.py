"""What writes to Redis wait for, as configured."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.config.section import Section

MAX_TIMEOUT_S = 2.0  # each batch of a service waits so long at most


class DurabilityOptions(Section):
    """What a commit waits for beside the memory of Redis's master, so that it survives a fail-over."""

    replicas: Annotated[int, Field(ge=0, le=8)] = 0
    """So many replicas have it in memory (WAIT)."""
    fsync: bool = False
    """The master has it on its disk (WAITAOF): up to a second, unless Redis writes with ``appendfsync always``."""
    timeout_s: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)] = 1.0
    """How long that is waited for. A commit stands all the same, and treadle_unreplicated_writes_total counts it."""
    strict: bool = False
    """A request that is not there in time is withdrawn, and its client answered 503."""

    @property
    def is_on(self) -> bool:
        """Whether anything is waited for."""
        return self.fsync or self.replicas > 0
