"""How fast blocks go out to host memory and come back, measured when a model was loaded (AdaptiveLLM, §3.2)."""

from __future__ import annotations

from gpu_node.engine.border.executor import BlocksStayError, Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.kv_costs import MoveRates

NUM_BLOCKS = 64
NUM_REPEATS = 3
"""The fastest counts: the first touches pages for the first time."""


def measured_rates(executor: Executor, model: LoadedModel) -> MoveRates:
    """Of free blocks; 0.0 both ways where they cannot be moved."""
    blocks = range(min(NUM_BLOCKS, model.num_blocks))
    num_bytes = len(blocks) * model.block_bytes
    out_s: list[float] = []
    in_s: list[float] = []
    for _ in range(NUM_REPEATS):
        try:
            content, duration_s = executor.read_blocks(model.name, blocks, swapped_out=False)
        except BlocksStayError:
            return MoveRates(0.0, 0.0)
        out_s.append(duration_s)
        in_s.append(executor.write_blocks(model.name, blocks, content))
    return MoveRates(_rate(num_bytes, min(out_s)), _rate(num_bytes, min(in_s)))


def _rate(num_bytes: int, duration_s: float) -> float:
    """What took no time at all cannot be measured, and costs nothing."""
    return num_bytes / duration_s if duration_s > 0 else float("inf")
