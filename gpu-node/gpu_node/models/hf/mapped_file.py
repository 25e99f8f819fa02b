"""One safetensors file, mapped: its tensors as numpy's arrays."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_node.models.tensors.arrays import Float32s

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LENGTH = struct.Struct("<Q")

FLOATS = ("F32", "F16", "BF16", "F64")
"""Types of tensors that can be read."""


class MappedFile:
    """A file of the format's specification: eight bytes of length, a header in JSON, then all tensors.

    Its package has looked through the header when it has opened it once.
    """

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, mode="r").view(np.ndarray)
        (num_bytes,) = _LENGTH.unpack(self._data[: _LENGTH.size].tobytes())
        self._start = _LENGTH.size + num_bytes
        self._header: dict[str, Any] = json.loads(self._data[_LENGTH.size : self._start].tobytes())

    def kind(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Type and shape of a tensor."""
        about = self._header[name]
        return about["dtype"], tuple(about["shape"])

    def rows(self, name: str) -> npt.NDArray[np.uint8]:
        """[first dimension, bytes] of a matrix as it lies in the file: a view, not to be written."""
        return self._bytes(name).reshape(self._header[name]["shape"][0], -1)

    def float32s(self, name: str) -> Float32s:
        """A tensor; of float32s, a view of the mapped file, not to be written."""
        about, data = self._header[name], self._bytes(name)
        numbers = data.view(_TYPES[about["dtype"]]).reshape(about["shape"])
        if numbers.dtype == np.uint16:  # bfloat16, which numpy does not have: the upper half of a float32
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers.astype(np.float32, copy=False)

    def _bytes(self, name: str) -> npt.NDArray[np.uint8]:
        first, end = self._header[name]["data_offsets"]
        return self._data[self._start + first : self._start + end]
