"""What an engine has to say of a request."""

from __future__ import annotations

from typing import NamedTuple

from shared.messages.requests.token_logprob import TokenLogprob

LOST = "lost"
"""An end that no client hears of: the state that the attempt was to go on from is gone, so another has to begin with
the tokens that the client has."""


class OutputChunk(NamedTuple):
    """New tokens of one choice of one attempt, or its end.

    A tuple, since one is made for each token; `gpu_node.engine.process.protocol.protocol` makes the message of it,
    field by field.
    """

    request_id: str
    attempt: int
    start: int
    """Tokens of the choice's output before these."""
    token_ids: list[int]
    finish_reason: str = ""
    """As in `shared.messages.requests.requests.Chunk`, or `LOST`."""
    error: str = ""
    choice: int = 0
    logprobs: list[TokenLogprob] = []  # noqa: RUF012 - readers do not change it
    is_last: bool = False
    """No chunk of this attempt follows: every choice has ended."""
    cached_tokens: int | None = None
    """As in `shared.messages.requests.requests.Chunk`."""
    embedding: bytes = b""
    """Likewise."""
