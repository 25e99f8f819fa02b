"""The border that every executor stands behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import StepPlan, StepResult
from shared.config import ModelSpec


class ModelTooLargeError(ValueError):
    """The model's weights or KV cache do not fit into what the configuration gives; the text names both sizes."""


class PendingStep(Protocol):
    """A step in an executor's queue."""

    def result(self) -> StepResult:
        """Wait until it is computed. Called once; steps are asked in the order in which they were submitted."""
        ...


@dataclass(frozen=True, slots=True)
class ComputedStep:
    """A step that was computed when it was submitted."""

    computed: StepResult

    def result(self) -> StepResult:
        """What it gave."""
        return self.computed


class Executor(Protocol):
    """Owns a device: the weights and KV blocks on it, and the computation of steps."""

    @property
    def device(self) -> str:
        """What it runs on, in one word for people: ``cpu``, ``predicted``."""
        ...

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Replace the loaded model and empty the KV cache.

        Raises `ModelFileError` or `ModelTooLargeError`; then what was loaded before is still there.
        """
        ...

    def submit(self, plan: StepPlan) -> PendingStep:
        """Queue one step behind those before it. Returns at once where the device computes by itself.

        Any exception, here or in `PendingStep.result`, is a defect: the process must end.
        """
        ...


def num_kv_blocks(kv_cache_bytes: int, block_bytes: int, block_size: int, max_model_len: int, model: str) -> int:
    """Blocks that fit into ``kv_cache_bytes``; `ModelTooLargeError` if one sequence of full length would not."""
    num_blocks = kv_cache_bytes // block_bytes
    num_needed = -(-max_model_len // block_size)
    if num_blocks < num_needed:
        raise ModelTooLargeError(
            f"model {model!r}: one sequence of {max_model_len} tokens needs {num_needed * block_bytes} bytes of KV "
            f"cache ({num_needed} blocks of {block_bytes}); kv_cache_bytes is {kv_cache_bytes} ({num_blocks} blocks)"
        )
    return num_blocks
