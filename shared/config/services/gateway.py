"""The REST front: where it listens, and how much it takes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from shared.config.section import PositiveSeconds, Section

# What a body makes a gateway hold, at most: each byte, with a token of up to five bytes in a payload, and 64 payloads.
HELD_BYTES_PER_BODY_BYTE = 6
HELD_BYTES_PER_CALL = 64 << 10

SPARE_CONNECTIONS = 1024  # beside those with a request: idle ones, and those that ask for health or models


class GatewayOptions(Section):
    """The REST front."""

    host: str = "127.0.0.1"
    """Address that it listens on."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8080
    """Port that it listens on."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share the port, since each of them uses one core. ``max_inflight``, ``max_inflight_bytes`` and
    ``max_connections`` are those of all together: each takes its share, and its own memory for models' vocabularies."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 4 << 20
    """Largest body of a request."""
    max_inflight: Annotated[int, Field(ge=1)] = 4096
    """Requests that are held open at a time."""
    max_inflight_bytes: Annotated[int, Field(ge=1024)] = 128 << 20
    """Bodies and payloads of the requests that are held open at a time. The payloads lie in Redis as well; the gateway
    itself needs about six times as much memory."""
    max_connections: Annotated[int, Field(ge=1)] | None = None
    """Connections of clients that are held open at a time; without it, 1024 more than max_inflight. Each needs an open
    file. Where there are more, idle ones make room."""
    default_slo: str = "interactive"
    """Class of requests that name none."""
    keep_responses_s: PositiveSeconds | None = None
    """How long answers of the Responses API are kept, so that ``previous_response_id`` can name them; without it
    nothing is kept of any."""
    kept_responses_bytes: Annotated[int, Field(ge=1 << 20)] = 64 << 20
    """What they may have in Redis, all together; beyond, those that end first are dropped."""
    max_coalesce_s: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Where a gateway's core is full, streamed tokens wait for the next ones of their answers, this long at most, and
    go out with them as one event; first and last ones do not. 0: each goes out by itself as long as it can."""
    drain_s: PositiveSeconds = 15.0
    """Asked to stop, it takes no more connections and lets requests that run end for this long; the others are cut off.

    More than `treadle down` waits (20 s) is of use only where something more patient stops it."""
    cold_start_ttl_s: PositiveSeconds = 300.0
    """A request whose model no node can serve is held for this long, then dropped with 503. While nodes can, it is held
    as its class's ``queue_ttl_s`` says, also where its model has to be swapped in first."""

    @property
    def most_connections(self) -> int:
        """``max_connections``, or what stands for it."""
        return self.max_connections or self.max_inflight + SPARE_CONNECTIONS

    @model_validator(mode="after")
    def _can_be_reached(self) -> GatewayOptions:
        if self.most_connections < self.max_inflight:
            raise ValueError(
                f"max_connections: {self.max_connections} connections cannot bring max_inflight ({self.max_inflight}) "
                "requests; take at least as many, or lower max_inflight"
            )
        return self

    @model_validator(mode="after")
    def _takes_the_largest_body(self) -> GatewayOptions:
        least = HELD_BYTES_PER_BODY_BYTE * self.max_body_bytes + HELD_BYTES_PER_CALL
        problems = []
        if self.max_inflight < self.workers:
            problems.append(f"max_inflight: each of {self.workers} workers needs one at least")
        if self.max_inflight_bytes // self.workers < least:
            each = f", in each of {self.workers} workers" if self.workers > 1 else ""
            problems.append(
                f"max_inflight_bytes: a body of max_body_bytes and its payload may need {least}{each}; "
                f"take at least {least * self.workers}"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self
