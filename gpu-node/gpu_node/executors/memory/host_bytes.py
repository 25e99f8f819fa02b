"""Bytes of host memory as a tensor, without numpy between them."""

from __future__ import annotations

import torch


def as_tensor(content: bytearray, dtype: torch.dtype) -> torch.Tensor:
    """A view of all of ``content``, [numbers]; torch itself has none of no bytes."""
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
