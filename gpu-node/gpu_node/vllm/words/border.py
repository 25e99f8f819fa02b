"""What is asked of a running vLLM, one a model, and what it brings; nothing here knows vLLM itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.engine import ModelSpec, ModelTask
from shared.messages.requests.payload import Constraint, Payload
from shared.messages.requests.token_logprob import TokenLogprob


class CoreDiedError(RuntimeError):
    """A running vLLM has ended by itself; what it ran is lost, and the epoch with it."""


class ModelRefusedError(RuntimeError):
    """vLLM does not serve this model as it is configured; the text is its own reason."""


class PicturesRefusedError(ValueError):
    """The images of a prompt cannot be read as its model does; the text is for its client."""


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt with images as vLLM computes it."""

    token_ids: list[int]
    """With as many for each image as the model reads of it."""
    features: tuple[Any, ...]
    """vLLM's own of each image: its pixels as numbers, where in the prompt it is, and its name in caches."""


@dataclass(frozen=True, slots=True)
class OwnDraw:
    """A token that Treadle draws itself: chance from (seed, choice, position), penalties over earlier output too.

    vLLM takes the output of earlier attempts for a part of the prompt, and would begin its random numbers anew.
    """

    seed: int
    choice: int
    num_prompt_tokens: int
    """Of the request; behind them, what vLLM was given as its prompt is output."""


@dataclass(frozen=True, slots=True)
class CoreConstraint:
    """What a continuation has to be."""

    constraint: Constraint
    output_token_ids: Sequence[int]
    """What it has already, which is prompt to vLLM."""


@dataclass(frozen=True, slots=True)
class CoreKept:
    """What was computed of a continuation, outside of vLLM."""

    num_tokens: int
    """Tokens whose KV it is; 0 where nothing was computed, or had no room."""
    content: memoryview
    """Of the blocks of these tokens, as vLLM's workers have laid it down."""


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """One continuation of a request, which is a request of its own to vLLM."""

    core_id: str
    token_ids: Sequence[int]
    """Prompt and output of earlier attempts."""
    max_tokens: int
    stop_token_ids: Sequence[int]
    priority: int
    """The least comes first and gives way last."""
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Sequence[tuple[int, float]]
    num_top: int | None
    """Logprobs that each token brings, beside its own; None: not even that."""
    own_draw: OwnDraw | None = None
    kept: CoreKept | None = None
    """What it begins with."""
    constrained: CoreConstraint | None = None
    adapter: str = ""
    """Of the model's, that reads it; ``""``: the model itself."""
    task: ModelTask = "generate"
    """Of any other, a row comes in the place of tokens, and nothing is drawn."""
    features: tuple[Any, ...] = ()
    """Of the images in its prompt (`ReadPrompt`)."""
    partition: str = ""
    """As in `Payload`: the salt of its blocks in vLLM's prefix cache."""


@dataclass(frozen=True, slots=True)
class CoreOutput:
    """What one step brought for one continuation."""

    core_id: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] = ()
    """One a token, where they were asked for."""
    is_last: bool = False
    """vLLM is through with it."""
    num_cached_tokens: int | None = None
    """Of its prompt, those that were not computed; said with its first token."""
    is_whole: bool = False
    """By its constraint nothing may follow; it is the last."""
    error: str = ""
    """Why it is unknown what its constraint allows, or what its row is; it is the last then, and what it brings is
    worth nothing."""
    row: bytes = b""
    """Of a text that is embedded or scored: float32, little-endian, as `OutputChunk.embedding`; it is the last."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """What a step computed, in the numbers of `StepCost.predict_s`."""

    num_rows: int
    num_context_tokens: int
    num_attended_tokens: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class CoreStep:
    """One step of vLLM."""

    outputs: Sequence[CoreOutput]
    kv_usage: float | None
    """Part of its blocks that are held; None where it does not say."""
    begun: Sequence[str] = ()
    """Continuations that it computed something of for the first time."""
    num_preempted: int = 0
    """Of vLLM's own accord, for want of blocks: they are computed again."""
    size: StepSize | None = None
    """None where nothing was computed."""
    kept: Mapping[str, CoreKept] = field(default_factory=dict)
    """Of those that were asked to leave with their KV. All that they had brought before has been told."""


class EngineCore(Protocol):
    """A running vLLM with one model. What it brings comes by the callback that it was started with."""

    @property
    def weights_bytes(self) -> int:
        """What they take, on all devices together; in host memory while it sleeps."""
        ...

    def read_pictures(self, payload: Payload) -> ReadPrompt:
        """The prompt of a request with images, which vLLM's own processor reads; `PicturesRefusedError`."""
        ...

    def add(self, request: CoreRequest) -> None:
        """Let a continuation run. `CoreDiedError` where vLLM has died, as of the next."""
        ...

    def abort(self, core_ids: Sequence[str]) -> None:
        """Forget continuations before the next step; those that have ended are ignored."""
        ...

    def keep(self, core_ids: Sequence[str]) -> None:
        """Let continuations end before the next step, and tell of each what it had computed (`CoreStep.kept`).

        Of those that have ended meanwhile nothing is told.
        """
        ...

    def sleep(self) -> None:
        """Give the device's memory back: weights go to host memory, KV is forgotten. It has no requests."""
        ...

    def wake(self) -> None:
        """Take it again."""
        ...

    def close(self) -> None:
        """End it, with all processes that it has."""
        ...


CoreEvent = CoreStep | CoreDiedError
StartCore = Callable[[ModelSpec], tuple[EngineCore, LoadedModel]]
"""Starts one with a model; `ModelRefusedError` where it does not serve it. Takes as long as the model's load."""
