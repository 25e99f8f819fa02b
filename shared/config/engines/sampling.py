"""How tokens of a model are drawn where a request does not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from shared.config.bounds import STRICT, NumberRange

LEAST_TOP_P = 1e-6  # nothing at all is no set of tokens to draw from


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """As the fields of a request of these names; null is as the model's files say, else as in OpenAI's API."""

    __pydantic_config__: ClassVar = STRICT

    temperature: Annotated[float, NumberRange(0, 2)] | None = None
    """0 always takes the most likely token."""
    top_p: Annotated[float, NumberRange(LEAST_TOP_P, 1)] | None = None
    """The most likely tokens that have this probability together; 1 keeps all."""
    top_k: Annotated[int, NumberRange(0, 1 << 20)] | None = None
    """That many of the most likely tokens; 0 keeps all."""
    min_p: Annotated[float, NumberRange(0, 1)] | None = None
    """Tokens that are at least so likely beside the most likely one; 0 keeps all."""
    presence_penalty: Annotated[float, NumberRange(-2, 2)] | None = None
    """Taken from the logit of what the answer has already; 0 takes nothing."""
    frequency_penalty: Annotated[float, NumberRange(-2, 2)] | None = None
    """The same, as often as the answer has it."""
    repetition_penalty: Annotated[float, NumberRange(0.01, 10)] | None = None
    """Divides the logit of what prompt or answer have already; 1 changes nothing."""


NO_SAMPLING = SamplingDefaults()
