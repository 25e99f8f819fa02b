"""What a request holds when it gives way, and what that costs it."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest


@dataclass(frozen=True, slots=True)
class HeldKv:
    """What a victim holds, in numbers, so that every engine asks the same rule."""

    num_tokens: int
    """Computed, or to be computed by the step that is drafted."""
    num_blocks: int
    num_free_host_blocks: int
    num_lasting_blocks: int = 0
    """Of those, what stays cached because others hold it too."""
    num_lasting_tokens: int = 0
    """In them."""
    num_copied_blocks: int = 0
    """Of all, what host memory has."""


def held_kv(request: EngineRequest, blocks: BlockManager) -> HeldKv:
    """Of all its sequences. Blocks that others hold too stay cached."""
    holders = [sequence.sequence_id for sequence in request.holders]
    num_lasting_blocks = blocks.num_lasting_blocks(holders)
    return HeldKv(
        num_tokens=sum(sequence.num_computed_tokens for sequence in request.holders),
        num_blocks=blocks.num_distinct_blocks(holders),
        num_free_host_blocks=blocks.num_free_host_blocks,
        num_lasting_blocks=num_lasting_blocks,
        num_lasting_tokens=num_lasting_blocks * blocks.block_size,
        num_copied_blocks=blocks.num_copied_blocks(holders),
    )


def recompute_and_swap_s(held: HeldKv, costs: KvCosts) -> tuple[float | None, float]:
    """Computing it again, None while nothing is known of steps; and moving it out and in, whatever room there is."""
    num_cached_tokens = max(held.num_lasting_tokens, costs.num_still_cached(held.num_tokens))
    num_cached_blocks = max(held.num_lasting_blocks, costs.num_still_cached(held.num_blocks))
    recompute_s = costs.recompute_s(held.num_tokens, num_cached_tokens)
    return recompute_s, costs.swap_s(held.num_blocks, num_cached_blocks, held.num_copied_blocks)


def cheaper_s(held: HeldKv, costs: KvCosts) -> float | None:
    """The cheaper of both, as far as host memory has room; None while nothing is known of steps."""
    recompute_s, swap_s = recompute_and_swap_s(held, costs)
    if recompute_s is None or held.num_blocks > held.num_free_host_blocks:
        return recompute_s
    return min(recompute_s, swap_s)
