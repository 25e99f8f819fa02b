"""Draws that vLLM would make otherwise: its logits processor, in the process that computes.

What the client gave a seed for is drawn by Treadle's own rule, from (seed, choice, position), so that an attempt that
goes on elsewhere draws what an undisturbed one would have drawn, whatever the engine; and so are draws with penalties
over output that vLLM takes for prompt. The token is drawn here, and all others are made impossible.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from gpu_node.vllm.inside.draw_rule import drawn
from gpu_node.vllm.inside.draw_state import OwnDrawState, state_of
from gpu_node.vllm.words.vllm_names import BatchUpdate, LogitsProcessor, MoveDirectionality, SamplingParams


class OwnDraws(LogitsProcessor):  # type: ignore[misc]
    """Rows of a batch by place; only those that are drawn here are known."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory
        self._rows: dict[int, OwnDrawState] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """What comes here was made by `gpu_node.vllm.inside.core`."""

    def is_argmax_invariant(self) -> bool:
        """No: even a greedy draw may have penalties."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Rows leave, come and move, in this order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, prompt, output in batch_update.added:
            self._rows.pop(row, None)
            state = state_of(params.extra_args, prompt or [], output)
            if state is not None:
                self._rows[row] = state
        for first, second, direction in batch_update.moved:
            mine, other = self._rows.pop(first, None), self._rows.pop(second, None)
            if mine is not None:
                self._rows[second] = mine
            if other is not None and direction == MoveDirectionality.SWAP:
                self._rows[first] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave one token to each row that is drawn here. Logits that are no numbers are left to vLLM."""
        for row, state in self._rows.items():
            token = drawn(logits[row], state)
            if token is not None:
                logits[row] = -math.inf
                logits[row, token] = 0.0
        return logits
