"""A weight from the tensors that model files hold it in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_node.models.stored import Stored


def weight_of(stored: Stored, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The weight, a view where it can be, of the tensors that it names, each of the shape that `Stored.shape` says."""
    if stored.stacked:
        return torch.stack(list(tensors))
    values = tensors[0].T if stored.transposed else tensors[0]
    if stored.num_parts > 1:
        values = values.chunk(stored.num_parts)[stored.part]
    return values[stored.num_skipped_rows :]
