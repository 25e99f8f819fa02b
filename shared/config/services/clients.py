"""Clients: their keys, and the promises that they may ask for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from shared.config.engines.engine import Name
from shared.config.section import PositiveSeconds, Section


class SloClass(Section):
    """A named promise; a request names it, or gets its key's default."""

    ttft_s: PositiveSeconds | None = None
    """Until the first token."""
    tpot_s: PositiveSeconds | None = None
    """For each further token, on average."""
    deadline_s: PositiveSeconds | None = None
    """From end to end."""
    queue_ttl_s: PositiveSeconds = 600.0
    """A request that has not started after this long is dropped with 429."""
    late: Literal["accept", "refuse"] = "accept"
    """What becomes of a request whose predicted wait breaks the promise: it is served late, or told so with 429."""

    @model_validator(mode="after")
    def _can_be_late(self) -> SloClass:
        if self.late == "refuse" and self.ttft_s is None and self.deadline_s is None:
            raise ValueError("late: 'refuse' needs ttft_s or deadline_s: without either, no request is ever late")
        return self


class ApiKey(Section):
    """A client's key. Tenant and allowed classes come from it, never from what the client says."""

    key: SecretStr
    """What the client sends as a bearer token."""
    tenant: Name
    """Whose requests these are."""
    slo_classes: list[str] | None = None
    """Classes this key may ask for; None allows all."""
    max_inflight: Annotated[int, Field(ge=1)] | None = None
    """Requests with this key that each gateway holds open at a time; None: as many as its tenant may have."""
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Requests with this key that all gateways together take within a minute; None: as many as come."""
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Tokens of their prompts and answers, likewise."""
