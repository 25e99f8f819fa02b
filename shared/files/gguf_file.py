"""The header of a GGUF file, versions 2 and 3: its metadata, and where each tensor lies (the GGUF specification).

The reader of the gguf package makes numpy views of every string, which takes seconds for a vocabulary; here a string
is decoded once. What the types mean, and how they are dequantised, is the package's part.
"""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGMLQuantizationType, GGUFValueType

from shared.files.model_file import ModelFileError, identity

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
MAX_HEADER_BYTES = 256 << 20
"""Ten times what the largest vocabularies take; in memory it becomes as much again ten times."""
_UINT32, _UINT64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBERS: Mapping[int, str] = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "?",
}


class _DamagedError(Exception):
    """What does not follow the specification; the text says where."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of an open file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    """Slowest dimension first, as numpy has it; the file has it last."""
    data: npt.NDArray[np.uint8]
    """[..., bytes of a row]: a view of the mapped file, not to be written."""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open file. It stays mapped as long as one of its tensors is used."""

    metadata: Mapping[str, object]
    """Numbers, texts, truth values, and lists of one of them."""
    tensors: Mapping[str, GgufTensor]


def open_gguf(path: Path) -> GgufFile:
    """Map a GGUF file; `ModelFileError` names the file and its digest when it is truncated or no GGUF file."""
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory; a GGUF file is expected here")
    try:
        return _read(np.memmap(path, mode="r").view(np.ndarray) if path.stat().st_size else np.empty(0, np.uint8))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    except _DamagedError as error:
        raise ModelFileError(f"{path} is no readable GGUF file ({error}); {identity(path)}; fetch it again") from error


def _read(data: npt.NDArray[np.uint8]) -> GgufFile:
    header = _Header(data)
    if header.uint32() != GGUF_MAGIC:
        raise _DamagedError("it does not begin with 'GGUF'")
    version = header.uint32()
    if version not in _VERSIONS:  # in a file for big-endian machines, the number is very large
        raise _DamagedError(f"its version is {version}, supported are {_VERSIONS}, little-endian")
    num_tensors, num_keys = header.uint64(), header.uint64()
    metadata: dict[str, object] = {}
    for _ in range(num_keys):
        key = header.text()
        if key in metadata:
            raise _DamagedError(f"key {key!r} is there twice")
        metadata[key] = header.value(header.uint32())
    places = [header.place() for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise _DamagedError(f"general.alignment is {reprlib.repr(alignment)}, expected a power of two")
    start = -(-header.offset // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for place in places:
        if place.name in tensors:
            raise _DamagedError(f"tensor {place.name!r} is there twice")
        tensors[place.name] = _tensor(place, start, data)
    return GgufFile(metadata, tensors)


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor as the header describes it."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int
    """Bytes, from the first tensor's."""


def _tensor(place: _Place, start: int, data: npt.NDArray[np.uint8]) -> GgufTensor:
    try:
        kind = GGMLQuantizationType(place.type_number)
    except ValueError as error:
        raise _DamagedError(f"tensor {place.name!r} is of unknown type {place.type_number}") from error
    if 0 in place.shape:  # beside it the others could be any, for nothing has to be there
        raise _DamagedError(f"tensor {place.name!r} has shape {place.shape}, which holds nothing")
    block_numbers, block_bytes = GGML_QUANT_SIZES[kind]
    num_columns = place.shape[-1] if place.shape else 1
    if num_columns % block_numbers:
        raise _DamagedError(
            f"tensor {place.name!r} has rows of {num_columns} numbers; {kind.name} packs {block_numbers} together"
        )
    byte_shape = (*place.shape[:-1], num_columns // block_numbers * block_bytes)
    first = start + place.offset
    end = first + math.prod(byte_shape)
    if end > len(data):
        raise _DamagedError(f"tensor {place.name!r} ends at byte {end} of {len(data)}")
    return GgufTensor(place.name, kind, place.shape, data[first:end].reshape(byte_shape))


class _Header:
    """The header from its beginning to the first tensor. `_DamagedError` where the file ends too early."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.offset = 0
        """Of the next byte."""
        self._data = data[:MAX_HEADER_BYTES].data
        self._end = "it ends at" if len(data) <= MAX_HEADER_BYTES else "it goes on behind"

    def uint32(self) -> int:
        """The next 4 bytes."""
        number: int = _UINT32.unpack(self._take(4))[0]
        return number

    def uint64(self) -> int:
        """The next 8 bytes."""
        number: int = _UINT64.unpack(self._take(8))[0]
        return number

    def text(self) -> str:
        """A string behind its length."""
        return self.texts(1)[0]

    def texts(self, count: int) -> list[str]:
        """So many strings, one behind the other: a hundred thousand in a vocabulary and its merges."""
        data, start, size = self._data, self.offset, len(self._data)
        if start + count * _UINT64.size > size:  # before any is read: the last would not be there
            raise _DamagedError(f"{self._end} byte {size}, inside its header")
        found = []
        for _ in range(count):
            first = start + _UINT64.size
            if first > size or (end := first + _UINT64.unpack_from(data, start)[0]) > size:
                raise _DamagedError(f"{self._end} byte {size}, inside its header")
            try:
                found.append(str(data[first:end], "utf-8"))
            except UnicodeDecodeError as error:
                raise _DamagedError(f"the text at byte {start} is not UTF-8") from error
            start = end
        self.offset = start
        return found

    def value(self, kind: int) -> object:
        """A value of the metadata, of a `GGUFValueType`."""
        if kind != GGUFValueType.ARRAY:
            return self._values(kind, 1)[0]
        return self._values(self.uint32(), self.uint64())

    def place(self) -> _Place:
        """Where a tensor lies."""
        name = self.text()
        num_dimensions = self.uint32()
        if num_dimensions > _MAX_DIMENSIONS:
            raise _DamagedError(f"tensor {name!r} has {num_dimensions} dimensions")
        sizes = [self.uint64() for _ in range(num_dimensions)]
        return _Place(name, tuple(reversed(sizes)), type_number=self.uint32(), offset=self.uint64())

    def _values(self, kind: int, count: int) -> list[Any]:
        if kind == GGUFValueType.STRING:
            return self.texts(count)
        if kind not in _NUMBERS:  # an array of arrays among them, which no file has
            raise _DamagedError(f"a value of unknown type {kind} at byte {self.offset}")
        number = np.dtype(_NUMBERS[kind])
        values: list[Any] = np.frombuffer(self._take(count * number.itemsize), number).tolist()
        return values

    def _take(self, num_bytes: int) -> memoryview:
        start, end = self.offset, self.offset + num_bytes
        if end > len(self._data):
            raise _DamagedError(f"{self._end} byte {len(self._data)}, inside its header")
        self.offset = end
        return self._data[start:end]
