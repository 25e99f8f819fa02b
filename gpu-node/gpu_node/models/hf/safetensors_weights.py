"""Tensors of a directory in Hugging Face layout under canonical names, checked against what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.safetensors_tensors import wanted_tensors
from gpu_node.models.tensors.stored_weight import weight_of


class SafetensorsWeights:
    """The tensors of a directory that are wanted, each read when it is asked for; its files are mapped until then."""

    def __init__(self, directory: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``stored_shapes``: by canonical name. `ModelFileError` names file and tensor, as `wanted_tensors`."""
        with ExitStack() as open_files:
            self._wanted, self._tensors = wanted_tensors(directory, config, stored_shapes, open_files, framework="pt")
            open_files.pop_all()  # a file is closed with the last of its tensors

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a canonical name, of any float: a view of the mapped file, which is read when it is used."""
        place = self._wanted[name]
        tensors: list[torch.Tensor] = [self._tensors[part].read() for part in place.names]
        return weight_of(place, tensors, torch.stack)
