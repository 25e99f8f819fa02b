"""What becomes of the KV of a request that gives way."""

from __future__ import annotations

from itertools import count

from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.preemption import (
    AlwaysRecompute,
    Cheaper,
    KvFate,
    PreemptionPolicy,
    SwapIfRoom,
    preemption_policy,
)
from gpu_node.engine.steps.batch.order import Fair
from shared.config.engines.engine import EngineOptions, Preemption
from tests.gpu_node.bookkeeping import payload, prompt


def running(blocks: BlockManager, num_tokens: int, num_computed_tokens: int) -> EngineRequest:
    """A request with one sequence, as far as it has come."""
    request = EngineRequest.of(payload("a", prompt(num_tokens)), 0, count(), 64)
    for sequence in request.sequences:
        blocks.open(sequence.sequence_id, sequence.token_ids)
        blocks.append(sequence.sequence_id, 0, num_tokens)
        sequence.num_computed_tokens = num_computed_tokens
    return request


def test_it_is_recomputed_unless_the_configuration_says_swap() -> None:
    named: dict[Preemption, type[PreemptionPolicy]] = {
        "recompute": AlwaysRecompute,
        "swap": SwapIfRoom,
        "swap_only": SwapIfRoom,
        "adaptive": Cheaper,
    }
    for name, policy in named.items():
        options = EngineOptions(host_kv_bytes=1, preemption=name)
        assert type(preemption_policy(options, KvCosts(options, 1, CostLearner()), Fair())) is policy


def test_it_is_swapped_while_host_memory_has_room_for_all_of_it() -> None:
    for num_host_blocks, fate in ((2, KvFate.SWAP), (1, KvFate.NO_ROOM)):
        blocks = BlockManager.alone(4, block_size=4, model="m", num_host_blocks=num_host_blocks)
        assert SwapIfRoom().fate(running(blocks, 5, 5), blocks) is fate


def test_what_is_not_computed_is_not_worth_a_swap() -> None:
    blocks = BlockManager.alone(4, block_size=4, model="m", num_host_blocks=4)
    request = running(blocks, 5, 0)
    assert SwapIfRoom().fate(request, blocks) is KvFate.RECOMPUTE
    assert AlwaysRecompute().fate(request, blocks) is KvFate.RECOMPUTE
