"""LoRA adapters of a model: small changes of its weights, served under names of their own beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from shared.config.bounds import STRICT, Matching, NumberRange

MAX_ADAPTERS = 64
"""Of a model; all of them are loaded with it."""
MAX_RANK = 512
"""Of an adapter; most have 8 to 64."""


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """A change of low rank to a model's linear layers (LoRA: Hu et al., ICLR'22).

    Requests for it, for the model and for the model's other adapters run in one batch over the same weights.
    """

    __pydantic_config__: ClassVar = STRICT

    name: Annotated[str, Matching(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,95}$")]
    """What clients say as ``model``."""
    source: str
    """A directory in the layout of Hugging Face's PEFT (adapter_config.json and adapter_model.safetensors),
    ``hf:ORG/NAME@COMMIT``, or ``s3://BUCKET/PREFIX/``."""
    sha256: Annotated[str, Matching(r"^[0-9a-f]{64}$")] | None = None
    """What ``cd DIRECTORY && LC_ALL=C sha256sum * | sha256sum`` prints."""


@dataclass(frozen=True, slots=True)
class AdapterRoom:
    """Room for adapters that vLLM makes when it loads a model, and cannot make later (``engine: vllm``)."""

    __pydantic_config__: ClassVar = STRICT

    num: Annotated[int, NumberRange(1, MAX_ADAPTERS)] = 4
    """Adapters that compute in one step. More may be loaded: they take turns."""
    rank: Annotated[int, NumberRange(1, MAX_RANK)] = 16
    """The largest of an adapter."""
