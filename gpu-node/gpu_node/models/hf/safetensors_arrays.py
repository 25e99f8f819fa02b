"""Tensors of a directory in Hugging Face layout as numpy's float32: for devices that compute without torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.mapped_file import MappedFile
from gpu_node.models.hf.safetensors_tensors import wanted_tensors
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.tensors.stored_weight import weight_of


class SafetensorsArrays:
    """The tensors of a directory that are wanted, each read when it is asked for; its files are mapped until then."""

    def __init__(self, directory: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``stored_shapes``: by canonical name. `ModelFileError` names file and tensor, as `wanted_tensors`."""
        with ExitStack() as open_files:  # their package has looked through the headers when it has opened them
            self._wanted, tensors = wanted_tensors(directory, config, stored_shapes, open_files, framework="np")
        files = {path: MappedFile(path) for path in {tensor.path for tensor in tensors.values()}}
        self._tensors = {name: (files[tensor.path], tensor) for name, tensor in tensors.items()}

    def read(self, name: str) -> Float32s:
        """The tensor of a canonical name; of float32s, a view of the mapped file, not to be written."""
        place = self._wanted[name]
        return weight_of(place, [self._read(part) for part in place.names], np.stack)

    def _read(self, part: str) -> Float32s:
        file, tensor = self._tensors[part]
        return file.float32s(tensor.name)
