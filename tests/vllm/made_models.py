"""Small models with weights made up, as directories: one that two ranks can share, and the same with int8 weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

VOCABULARY = 512
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
QUANTIZED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def write_plain(folder: Path) -> Path:
    """A Llama with random weights, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG, bos_token_id=1, eos_token_id=2, initializer_range=0.1))
    model.bfloat16().save_pretrained(folder)
    return folder


def write_quantized(plain: Path, folder: Path) -> Path:
    """The same in int8, with a scale a row, as compressed-tensors stores it."""
    folder.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            tensors[name], tensors[f"{name}_scale"] = quantized(tensor)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZED}))
    return folder


def quantized(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers and the scale of each row, in bfloat16."""
    scale = (weight.float().abs().amax(dim=1, keepdim=True) / 127).bfloat16()
    return (weight.float() / scale.float()).round().clamp(-127, 127).to(torch.int8), scale


def next_logprobs(plain: Path, prompt: list[int], *, is_quantized: bool) -> torch.Tensor:
    """Of the whole vocabulary behind a prompt, in float32; the weights rounded to int8 where asked for."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(plain, dtype=torch.float32)
    if is_quantized:
        for name, weight in model.named_parameters():
            if name.endswith("_proj.weight"):
                whole, scale = quantized(weight.data.bfloat16())
                weight.data = whole.float() * scale.float()
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1], dim=-1)
