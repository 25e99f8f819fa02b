"""What travels through vLLM with a request whose tokens are drawn by Treadle, and what is made of it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu_node.vllm.words.border import CoreRequest
from shared.messages.requests.payload import Sampling

KEY = "treadle"
"""Under which it lies among the extra arguments of vLLM's sampling parameters."""


@dataclass(frozen=True, slots=True)
class OwnDrawState:
    """Of one row of a batch, for as long as it is in it."""

    sampling: Sampling
    choice: int
    num_prompt_tokens: int
    given: Sequence[int]
    """What vLLM takes for the prompt."""
    drawn: Sequence[int]
    """What it has drawn since; it grows."""
    is_constrained: bool = False
    """vLLM has made the logits of what may not be drawn minus infinity."""

    @property
    def prompt_token_ids(self) -> Sequence[int]:
        """The prompt of the request."""
        return self.given[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        """The whole output so far, that of earlier attempts included."""
        return [*self.given[self.num_prompt_tokens :], *self.drawn]


def extra_args(request: CoreRequest) -> dict[str, Any] | None:
    """What goes along with a request; None where vLLM draws."""
    own = request.own_draw
    if own is None:
        return None
    sampling = Sampling(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        seed=own.seed,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=list(request.logit_bias),
    )
    told = {"choice": own.choice, "num_prompt_tokens": own.num_prompt_tokens}
    return {KEY: {"sampling": asdict(sampling), "is_constrained": request.constrained is not None, **told}}


def state_of(extra: Mapping[str, Any] | None, given: Sequence[int], drawn: Sequence[int]) -> OwnDrawState | None:
    """Of a row that comes; None where vLLM draws."""
    own = (extra or {}).get(KEY)
    if own is None:
        return None
    values = own["sampling"] | {"logit_bias": [(token, bias) for token, bias in own["sampling"]["logit_bias"]]}
    constrained = own["is_constrained"]
    return OwnDrawState(Sampling(**values), own["choice"], own["num_prompt_tokens"], given, drawn, constrained)
