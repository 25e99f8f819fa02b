"""One safetensors file, mapped: its tensors as numpy's arrays."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from gpu_node.models.arrays import Float32s

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

    def float32s(self, name: str) -> Float32s:
        """A tensor; of float32s, a view of the mapped file, not to be written."""
        about = self._header[name]
        first, end = about["data_offsets"]
        data = self._data[self._start + first : self._start + end]
        numbers = data.view(_TYPES[about["dtype"]]).reshape(about["shape"])
        if numbers.dtype == np.uint16:  # bfloat16, which numpy does not have: the upper half of a float32
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers.astype(np.float32, copy=False)
