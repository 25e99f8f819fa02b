"""Tensors of a GGUF file as float32 under canonical names, checked against what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.gguf_config import ROPE_FACTORS_TENSOR
from gpu_node.models.names import first_of
from shared.model_file import ModelFileError

_FILE_NAMES = {"embedding": "token_embd", "norm": "output_norm", "lm_head": "output"}
_LAYER_FILE_NAMES = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
}


def file_name(weight: str) -> str:
    """Name of a tensor in a GGUF file: ``layers.3.q`` is ``blk.3.attn_q.weight``, ``layers.3.q_bias`` its bias."""
    if weight in _FILE_NAMES:
        return f"{_FILE_NAMES[weight]}.weight"
    _, layer, name = weight.split(".")
    kind = "bias" if name.endswith("_bias") else "weight"
    return f"blk.{layer}.{_LAYER_FILE_NAMES[name.removesuffix('_bias')]}.{kind}"


def read_tensors(
    reader: GGUFReader, path: Path, config: ModelConfig, stored: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors ``stored`` (shapes by canonical name), one after another, each as float32.

    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable.
    """
    tensors = {tensor.name: tensor for tensor in reader.tensors if tensor.name != ROPE_FACTORS_TENSOR}
    wanted = {file_name(name): name for name in stored}
    missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or extra:
        raise ModelFileError(f"{path}: missing tensors: {first_of(missing)}; tensors not known: {first_of(extra)}")
    for name, canonical in wanted.items():
        shape = tuple(int(size) for size in reversed(tensors[name].shape))  # GGUF: fastest dimension first
        if shape != stored[canonical]:
            raise ModelFileError(f"{path}: tensor {name} has shape {shape}, expected {stored[canonical]}")
        values = _read(tensors[name], path).reshape(shape)
        if config.family is Family.LLAMA and name.endswith(("attn_q.weight", "attn_k.weight")):
            values = _halves_from_pairs(values, config.head_dim)
        yield canonical, torch.from_numpy(values)


def _read(tensor: Any, path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except (NotImplementedError, ValueError, KeyError) as error:
        raise ModelFileError(f"{path}: tensor {tensor.name} of type {tensor.tensor_type!r}: {error}") from error
    # float32 tensors come back as a view of the mapped file: read-only, and gone when the file is replaced
    return np.array(values, dtype=np.float32, order="C")


def _halves_from_pairs(values: np.ndarray[Any, np.dtype[np.float32]], head_dim: int) -> Any:
    """Undo the row order that GGUF files of the Llama family have in their query and key weights.

    A rotary embedding turns pairs of numbers of a head. Published Llama weights pair number i with number
    i + head_dim / 2; the GGUF converter reorders the rows of each head so that a pair lies side by side, (2i, 2i + 1).
    Dot products of q and k are the same in both orders. We keep one rope kernel, for the first order.

    ``values``: [heads * head_dim, inputs].
    """
    num_inputs = values.shape[1]
    pairs = values.reshape(-1, head_dim // 2, 2, num_inputs)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1, num_inputs)
