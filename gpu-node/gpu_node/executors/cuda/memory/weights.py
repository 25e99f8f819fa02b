"""Weights that leave a CUDA device for its host and come back, one tensor after the other, in the copying queue."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def to_host(weights: Mapping[str, torch.Tensor], copies: torch.cuda.Stream | None) -> dict[str, torch.Tensor]:
    """In pinned memory, of which torch keeps what is freed: models that change places pin it once.

    The device has no step of theirs any more. ``copies`` is None where device and host are the same.
    """
    there = {
        name: torch.empty(values.shape, dtype=values.dtype, pin_memory=copies is not None)
        for name, values in weights.items()
    }
    return _copied(weights, there, copies)


def to_device(
    weights: Mapping[str, torch.Tensor], device: torch.device, copies: torch.cuda.Stream | None
) -> dict[str, torch.Tensor]:
    """From pinned memory, while the device computes; `torch.OutOfMemoryError` where it has no room."""
    there = {name: torch.empty_like(values, device=device) for name, values in weights.items()}
    return _copied(weights, there, copies)


def _copied(
    weights: Mapping[str, torch.Tensor], there: dict[str, torch.Tensor], copies: torch.cuda.Stream | None
) -> dict[str, torch.Tensor]:
    if copies is not None:
        # memory that was just freed may still be in use by what the queue that computes has before it
        copies.wait_stream(torch.cuda.current_stream(copies.device))
    with torch.cuda.stream(copies):
        for name, values in weights.items():
            there[name].copy_(values, non_blocking=True)
    if copies is not None:
        copies.synchronize()
    return there
