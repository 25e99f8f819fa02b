"""How a client wants tokens to be drawn, and how many continuations it wants: OpenAI's fields and vLLM's extensions.

- ``n`` continuations are returned. ``best_of`` is how many are made; the best ``n`` of them are returned, ranked by the
  mean logprob of their tokens (by their summed logprobs over their length to the power of ``length_penalty``).
- ``use_beam_search`` makes the most likely continuations instead of drawing them; ``best_of``, else ``n``, is the width
  of the beam. What only concerns chance (temperature, top_p, top_k, min_p, seed) has no effect then.
- Which candidates are best is known when all are complete. So nothing of them can be streamed, and stop strings, which
  the gateway finds in the text, cannot end them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError
from shared.config.engines.sampling import NO_SAMPLING, SamplingDefaults

MAX_CANDIDATES = 16  # continuations of one request; a node runs all of them at the same time
MAX_LOGIT_BIASES = 1024
MAX_LOGIT_BIAS = 100.0
MAX_PENALTY = 2.0
# Logits are divided by it or multiplied: beyond, they would run out of what a float holds, long after they had no more
# to say. A node takes the same range.
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 10.0
MAX_LENGTH_PENALTY = 10.0


def _by_token_id(bias: Any) -> Any:
    """JSON has no other keys than strings: ``{"5": 1.5}`` as ``{5: 1.5}``; other shapes are left for the type."""
    if not isinstance(bias, dict):
        return bias
    if len(bias) > MAX_LOGIT_BIASES:
        raise ValueError(f"it has at most {MAX_LOGIT_BIASES} token ids, not {len(bias)}")
    wrong = [key for key in bias if not (isinstance(key, str) and key.isascii() and key.isdigit())]
    if wrong:
        raise ValueError("its keys are token ids, written as numbers")
    if len({int(key) for key in bias}) < len(bias):
        raise ValueError("a token id is given twice")
    return {int(key): value for key, value in bias.items()}


Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY, allow_inf_nan=False)]
TokenIdKey = Annotated[str, Field(pattern="^[0-9]+$")]
Bias = Annotated[float, Field(ge=-MAX_LOGIT_BIAS, le=MAX_LOGIT_BIAS, allow_inf_nan=False)]


class DrawFields(ApiObject):
    """The part of a request that says how tokens are drawn."""

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=-1, le=1 << 20)] = 0
    """Keep the k most likely tokens; 0 and −1 keep all."""
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    """Equal seeds draw equal tokens; without one, a random one is taken."""
    ignore_eos: bool = False
    """Go on to max_tokens, whatever the model says; for benchmarks."""
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[
        float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY, allow_inf_nan=False)
    ] = 1.0
    logit_bias: Annotated[
        dict[int, Bias],
        Field(max_length=MAX_LOGIT_BIASES),
        BeforeValidator(_by_token_id, json_schema_input_type=dict[TokenIdKey, Bias]),
    ] = Field(default_factory=dict)
    """Token ids of the model, each with what is added to its logit."""

    def filled(self, defaults: SamplingDefaults) -> Self:
        """The same, with what the request does not say as the model has it."""
        if defaults == NO_SAMPLING:
            return self
        own = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
        given = self.model_fields_set
        left_out = {name: value for name, value in own.items() if value is not None and name not in given}
        return self.model_copy(update=left_out) if left_out else self


class SamplingFields(DrawFields):
    """That, and how many continuations are made of it."""

    n: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] = 1
    best_of: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] | None = None
    """Continuations that are made; without it, ``n``."""
    use_beam_search: bool = False
    length_penalty: Annotated[float, Field(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _go_together(self) -> SamplingFields:
        if self.num_candidates < self.n:
            raise FieldConflictError("best_of", f"best_of must be at least n, which is {self.n}")
        if self.length_penalty != 1.0 and not self.is_ranked:
            raise FieldConflictError("length_penalty", "length_penalty needs use_beam_search, or best_of above n")
        # beams are the most likely sequences by the model's own distribution, which these would change
        changed = {
            "presence_penalty": self.presence_penalty != 0,
            "frequency_penalty": self.frequency_penalty != 0,
            "repetition_penalty": self.repetition_penalty != 1,
            "logit_bias": bool(self.logit_bias),
        }
        for name in changed:
            if self.use_beam_search and changed[name]:
                raise FieldConflictError(name, f"{name} cannot be combined with use_beam_search")
        return self

    @property
    def num_candidates(self) -> int:
        """Continuations that are made; with beam search, the width of the beam."""
        return self.n if self.best_of is None else self.best_of

    @property
    def is_ranked(self) -> bool:
        """Whether the best of several candidates are to be found, so that nothing is known before the end."""
        return self.use_beam_search or self.num_candidates > self.n
