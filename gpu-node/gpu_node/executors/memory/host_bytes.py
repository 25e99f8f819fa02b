"""Bytes of host memory as a tensor, without numpy between them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch


def as_tensor(content: bytearray, dtype: torch.dtype) -> torch.Tensor:
    """A view of all of ``content``, [numbers]; torch itself has none of no bytes."""
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)


def bytes_of(numbers: torch.Tensor) -> memoryview:
    """Host memory of a tensor without gaps, as bytes that can be read and written while the tensor is there."""
    assert numbers.device.type == "cpu"
    assert numbers.is_contiguous()
    return memoryview((ctypes.c_ubyte * numbers.nbytes).from_address(numbers.data_ptr())).cast("B")


def row_bytes(sequence_ids: Iterable[int], rows: torch.Tensor) -> dict[int, bytes]:
    """A copy of each row of ``rows`` float32 [sequences, numbers], by the sequence that it is of."""
    assert rows.dtype is torch.float32
    return {one: bytes(bytes_of(row)) for one, row in zip(sequence_ids, rows.contiguous(), strict=True)}
