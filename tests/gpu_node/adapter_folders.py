"""Adapters in PEFT's layout with random matrices, and the models of `transformers` with these merged into them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

MODULES: Mapping[str, tuple[str, ...]] = {
    "opt": ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"),
    "gpt2": ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
    "mixtral": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
"""What a family calls the linear layers that can be adapted."""
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SIZE = 0.25
"""Of the numbers of A and B: large enough that an adapter changes tokens."""


def modules_of(family: str) -> tuple[str, ...]:
    return MODULES.get(family.split("-")[0], ALL)


def save_adapter(
    model: Any,
    path: Path,
    modules: Collection[str],
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Any:
    """Save an adapter of ``model`` for these modules of all its layers; returns the model with it merged."""
    generator = torch.Generator().manual_seed(seed)
    merged = copy.deepcopy(model)
    tensors = {}
    for name, layer in merged.named_modules():
        if not any(name.endswith(f".{one}") for one in modules):
            continue
        own = settings.get("rank_pattern", {}).get(name.rpartition(".")[2], rank)
        is_transposed = type(layer).__name__ == "Conv1D"
        outputs, inputs = layer.weight.shape[::-1] if is_transposed else layer.weight.shape
        a = (SIZE * torch.randn(own, inputs, generator=generator)).to(dtype)
        b = (SIZE * torch.randn(outputs, own, generator=generator)).to(dtype)
        scale = alpha / (math.sqrt(own) if settings.get("use_rslora") else own)
        change = scale * (b.float() @ a.float())
        layer.weight.data += change.T if is_transposed else change
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    assert tensors, "the model has such modules"
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(modules), "bias": "none"}
    (path / "adapter_config.json").write_text(json.dumps(config | settings))
    return merged
