"""GGUF files made from the tiny models of `transformers`, with the names that the gguf package gives their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import Family, ModelConfig

Array = np.ndarray[Any, Any]
ARCHITECTURES = {
    Family.MISTRAL: "llama",
    Family.MIXTRAL: "llama",
    Family.ROBERTA: "bert",
    Family.XLM_ROBERTA: "bert",
}
"""Where it is not the family's own name."""
_EXPERT = re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight")
_CONV1D = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")
_LLAMA_QUERY_OR_KEY = re.compile(r".*\.self_attn\.[qk]_proj\.weight")


def write_gguf(
    path: Path,
    directory: Path,
    *,
    arch: str | None = None,
    tensors: Mapping[str, Array] | None = None,
    types: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    keys: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Path:
    """The model of ``directory`` as a GGUF file, its tensors replaced by ``tensors`` where given.

    ``types``: tensors that are packed already, and how. ``metadata``: keys of the architecture, with ``__`` for dots;
    ``keys``: others.
    """
    config = open_checkpoint(directory).config
    arch = arch or ARCHITECTURES.get(config.family, str(config.family))
    writer = gguf.GGUFWriter(path, arch)
    numbers = _metadata(config) | {key.replace("__", "."): value for key, value in metadata.items()}
    for key, value in ({f"{arch}.{key}": value for key, value in numbers.items()} | dict(keys or {})).items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)
            case _:
                writer.add_string(key, value)
    for name, values in (tensors_of(directory) if tensors is None else tensors).items():
        writer.add_tensor(name, np.ascontiguousarray(values), raw_dtype=(types or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(config: ModelConfig) -> dict[str, Any]:
    norm = "layer_norm_rms_epsilon" if config.rope else "layer_norm_epsilon"
    numbers: dict[str, Any] = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        f"attention.{norm}": config.norm_epsilon,
    }
    if config.rope:
        numbers |= {"attention.head_count_kv": config.num_kv_heads, "attention.key_length": config.head_dim}
        numbers |= {"rope.freq_base": config.rope.theta}
    if config.num_experts:
        numbers |= {"expert_count": config.num_experts, "expert_used_count": config.num_experts_per_token}
    return numbers


def tensors_of(directory: Path) -> dict[str, Array]:
    """The weights of ``directory`` as a converter writes them: other names, linear layers [outputs, inputs]."""
    config = open_checkpoint(directory).config
    arch = ARCHITECTURES.get(config.family, str(config.family))
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, config.num_layers)
    tensors = {}
    for name, values in _merged(load_file(directory / "model.safetensors")):
        if arch == "llama" and _LLAMA_QUERY_OR_KEY.fullmatch(name):
            values = pairs_from_halves(values, config.head_dim)
        if arch == "gpt2" and _CONV1D.fullmatch(name):
            values = values.T
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, f"{name} has no name in GGUF"
        tensors[found] = values
    return tensors


def _merged(state: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """All tensors of a directory; experts stacked, under the name that the gguf package knows them by."""
    experts: dict[str, dict[int, Array]] = {}
    for name, values in state.items():
        expert = _EXPERT.fullmatch(name)
        if expert is None:
            yield name, values
        else:
            merged = f"layers.{expert[1]}.feed_forward.experts.{expert[3]}.weight"
            experts.setdefault(merged, {})[int(expert[2])] = values
    for name, parts in experts.items():
        yield name, np.stack([parts[index] for index in range(len(parts))])


def pairs_from_halves(values: Array, head_dim: int) -> Array:
    """The order of rows that the converter gives to queries and keys of the Llama architecture, and to no other."""
    half = head_dim // 2
    heads = range(len(values) // head_dim)
    return values[[head * head_dim + pair + part * half for head in heads for pair in range(half) for part in (0, 1)]]


def experts_apart(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """As files of before April 2024 have them: a tensor for each expert."""
    apart = {}
    for name, values in tensors.items():
        if "_exps." in name:
            for expert, part in enumerate(values):
                apart[name.replace("_exps.", f".{expert}.")] = part
        else:
            apart[name] = values
    return apart
