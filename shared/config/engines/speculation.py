"""Speculative decoding of a model, in the standard library alone (as `shared.config.engines.engine`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shared.config.bounds import STRICT, NumberRange

MAX_DRAFT_TOKENS = 16
"""Of a sequence in a step; the chance that all hold falls with each."""


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """Tokens that are guessed cheaply and checked together in one step (Leviathan et al., ICML'23).

    Outputs stay as they are without, token by token: what is drawn hangs on (seed, choice, position) alone, and a
    guess is kept where it is what the model draws there.
    """

    __pydantic_config__: ClassVar = STRICT

    method: Literal["ngram"]
    """Who guesses. ``ngram``: what followed the last tokens where they stood in prompt or output before."""
    max_draft_tokens: Annotated[int, NumberRange(1, MAX_DRAFT_TOKENS)] = 8
    """Most guesses of a sequence in a step. How many there are is chosen step by step, by what they are expected to
    bring; none where that is nothing."""
