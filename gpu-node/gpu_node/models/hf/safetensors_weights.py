"""Tensors of a directory in Hugging Face layout under canonical names, checked against what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.safetensors_tensors import StoredTensor, wanted_tensors
from gpu_node.models.stored import Stored
from gpu_node.models.stored_weight import weight_of


def read_tensors(
    directory: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors ``stored_shapes`` (by canonical name), one after another: views of the mapped files, of any float.

    Whoever takes one copies what it wants of it before the next: pages that nobody reads are never in memory.
    `ModelFileError` names file and tensor, before anything is read, as `wanted_tensors`.
    """
    with ExitStack() as open_files:
        wanted, tensors = wanted_tensors(directory, config, stored_shapes, open_files, framework="pt")
        return _weights(wanted, tensors, open_files.pop_all())


def _weights(
    wanted: Mapping[str, Stored], tensors: Mapping[str, StoredTensor], open_files: ExitStack
) -> Iterator[tuple[str, torch.Tensor]]:
    with open_files:
        for name, place in wanted.items():
            yield name, weight_of(place, [tensors[part].read() for part in place.names])
