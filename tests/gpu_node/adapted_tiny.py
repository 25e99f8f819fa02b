"""The tiny model with two adapters, and all three as `transformers` has them merged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter

NAMES = ("", "legal", "rhymes")
"""Of the model itself, and of its adapters."""


@dataclass(frozen=True)
class Adapted:
    """The model is a GGUF file."""

    spec: ModelSpec
    merged: dict[str, Any]

    def having(self, *names: str) -> ModelSpec:
        """The model with these of its adapters, in this order."""
        adapters = {one.name: one for one in self.spec.adapters}
        return replace(self.spec, adapters=tuple(adapters[name] for name in names))


def adapted_tiny(tiny_model: LlamaForCausalLM, tiny_path: Path, folder: Path) -> Adapted:
    merged: dict[str, Any] = {"": tiny_model}
    merged["legal"] = save_adapter(tiny_model, folder / "legal", ALL, rank=6, seed=1)
    merged["rhymes"] = save_adapter(tiny_model, folder / "rhymes", ALL[:4], rank=3, seed=2)
    adapters = tuple(AdapterSpec(name, str(folder / name)) for name in NAMES[1:])
    return Adapted(ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT, adapters=adapters), merged)


def asked(adapter: str, text: list[int], num_tokens: int = 8, name: str = "", **sampling: Any) -> Payload:
    return replace(tiny.request(name or f"of {adapter}", text, num_tokens, **sampling), adapter=adapter)
