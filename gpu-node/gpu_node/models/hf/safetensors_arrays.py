"""Tensors of a directory in Hugging Face layout as numpy's float32: for who computes without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from gpu_node.models.arrays import Float32s
from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.safetensors_tensors import StoredTensor, wanted_tensors
from gpu_node.models.stored_weight import weight_of

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LENGTH = struct.Struct("<Q")


class SafetensorsArrays:
    """The tensors of a directory that are wanted, each read when it is asked for; its files are mapped until then."""

    def __init__(self, directory: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``stored_shapes``: by canonical name. `ModelFileError` names file and tensor, as `wanted_tensors`."""
        with ExitStack() as open_files:  # their package has looked through the headers when it has opened them
            self._wanted, tensors = wanted_tensors(directory, config, stored_shapes, open_files, framework="np")
        files = {path: _MappedFile(path) for path in {tensor.path for tensor in tensors.values()}}
        self._tensors = {name: (files[tensor.path], tensor) for name, tensor in tensors.items()}

    def read(self, name: str) -> Float32s:
        """The tensor of a canonical name; of float32s, a view of the mapped file, not to be written."""
        place = self._wanted[name]
        return weight_of(place, [_read(*self._tensors[part]) for part in place.names], np.stack)


class _MappedFile:
    """A safetensors file (the format's specification): eight bytes of length, a header in JSON, then all tensors."""

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, mode="r").view(np.ndarray)
        (num_bytes,) = _LENGTH.unpack(self._data[: _LENGTH.size].tobytes())
        self._start = _LENGTH.size + num_bytes
        self._header: dict[str, Any] = json.loads(self._data[_LENGTH.size : self._start].tobytes())

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """As they lie in the file, of its shape; bfloat16, which numpy does not have, as unsigned integers."""
        about = self._header[name]
        first, end = about["data_offsets"]
        data = self._data[self._start + first : self._start + end]
        return data.view(_TYPES[about["dtype"]]).reshape(about["shape"])


def _read(file: _MappedFile, tensor: StoredTensor) -> Float32s:
    numbers = file.numbers(tensor.name)
    if numbers.dtype == np.uint16:  # bfloat16: the upper half of a float32
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float32, copy=False)
