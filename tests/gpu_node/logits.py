"""Logits of any executor as torch's: what computes without it returns arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from gpu_node.engine.border.plan import ScheduledSequence


class _HasLogits(Protocol):
    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> Any: ...


def logits_by(executor: _HasLogits, sequences: Sequence[ScheduledSequence], model: str = "") -> torch.Tensor:
    """Float32 [sequences that draw, vocabulary]."""
    with torch.inference_mode():
        return torch.as_tensor(executor.logits(sequences, model))
