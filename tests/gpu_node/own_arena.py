"""A program of the CPU device with an arena for its blocks alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu_node.kernels.cpu import CpuArena, CpuCacheShape, CpuProgram, Limits
from shared.config.engines.engine import WeightType


@contextmanager
def program_with_arena(
    limits: Limits,
    cache: CpuCacheShape,
    num_shared_heads: int,
    level: str = "",
    num_host_blocks: int = 0,
    weights: WeightType = "bfloat16",
) -> Iterator[tuple[CpuProgram, CpuArena, CpuArena]]:
    """The program, the arena of its blocks and that of the host's; closed at the end."""
    arena = CpuArena(1, cache.num_blocks * cache.block_bytes)
    host = CpuArena(1, num_host_blocks * cache.block_bytes)
    program = CpuProgram(limits, cache, num_shared_heads, level, arena=arena, host=host, weights=weights)
    try:
        yield program, arena, host
    finally:
        program.close()
        arena.close()
        host.close()
