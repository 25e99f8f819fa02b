"""How likely a token was."""

from __future__ import annotations

from typing import NamedTuple


class TokenLogprob(NamedTuple):
    """Of one drawn token: natural logarithms of the model's own distribution, before temperature."""

    logprob: float
    top: list[tuple[int, float]]
    """The most likely token ids with their logprobs, most likely first; as many as the request asked for."""
