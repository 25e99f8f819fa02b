"""Other rules of admission than the predicted peak: what fits now, what is worth its price, what could be swapped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.forecast import KvDemand
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.admission import KvAdmission
from gpu_node.engine.steps.admission.admission_rule import UNTIL_ONE_ENDS
from gpu_node.engine.steps.admission.held_kv import HeldKv, cheaper_s
from shared.config.engines.engine import EngineOptions

WATERMARK = 0.01
"""Of all blocks, kept free by greedy admission (vLLM 0.2.5, which AdaptiveLLM runs on)."""

SPARED_STEPS = 2.0
"""What a row that is admitted at a risk spares, by what it earns while it is in. Fitted to simulated loads (seeds 11
and 12): each further preemption spared 30 rows of steps where 10 to 20 were predicted; why is not proven."""


class _OtherAdmission(KvAdmission):
    """Has a rule of its own where there are places, and requests run."""

    retry_steps = UNTIL_ONE_ENDS
    """After which one that does not fit may, although none has ended."""

    def num_blocked_steps(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> int:
        """As of every rule; alone, a request always has its try."""
        if candidate.num_places > self._num_left_places(running):
            return UNTIL_ONE_ENDS
        return 0 if not running or self._fits(candidate, running) else self.retry_steps

    def _fits(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> bool:
        raise NotImplementedError

    def _num_left_places(self, requests: Iterable[EngineRequest]) -> int:
        return self._max_num_seqs - sum(request.num_places for request in requests)


class GreedyAdmission(_OtherAdmission):
    """While the tokens so far fit, and one more block for each sequence that comes back (vLLM)."""

    def _fits(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> bool:
        """Whether blocks are free beside what running requests have yet to fill with tokens that they have."""
        leader = candidate.sequences[0]
        if self._blocks.is_swapped_out(leader.sequence_id):
            holders = [sequence.sequence_id for sequence in candidate.holders]
            num_needed_blocks = self._blocks.num_swap_in_blocks(holders) + len(holders)
        else:
            num_needed_blocks = self._num_blocks(candidate) - self._num_held_by_others(candidate)
        num_promised_blocks = sum(map(self._num_unfilled_blocks, running))
        watermark = int(WATERMARK * self._model.num_blocks)
        return num_needed_blocks + num_promised_blocks + watermark <= self._blocks.num_free_blocks

    def num_admittable(self, running: Collection[EngineRequest], waiting: Collection[EngineRequest]) -> int:
        """How many prompts of typical length fit now."""
        num_places = self._num_left_places([*running, *waiting])
        num_promised_blocks = sum(map(self._num_unfilled_blocks, running)) + sum(map(self._num_blocks, waiting))
        num_left_blocks = self._blocks.num_free_blocks - num_promised_blocks
        num_places = min(num_places, num_left_blocks // self._typical.num_prompt_blocks)
        return max(num_places, 0 if running or waiting else 1)

    def _num_blocks(self, request: EngineRequest) -> int:
        """Of its leader, which computes for all until they fork."""
        return -(-len(request.sequences[0].token_ids) // self._model.block_size)

    def _num_held_by_others(self, candidate: EngineRequest) -> int:
        """Cached blocks of its prompt that take no free one."""
        return sum(
            map(self._blocks.is_held, self._blocks.match(candidate.sequences[0].token_ids, candidate.payload.owner))
        )

    def _num_unfilled_blocks(self, request: EngineRequest) -> int:
        """A prompt that is not computed yet takes its blocks chunk by chunk."""
        if request.is_forked:
            return 0
        return max(0, self._num_blocks(request) - len(self._blocks.table(request.sequences[0].sequence_id)))


class PricedAdmission(_OtherAdmission):
    """While what a row earns until memory runs out exceeds the price of giving way then.

    A step costs ``step_s`` however many rows it has, so one more row beside n saves the others ``step_s / (n + 1)`` of
    each step that it is in. The request that came last gives way first: when the blocks are predicted to run out after
    t steps, it is this candidate, with t tokens more than now. Giving way costs the cheaper of a swap, if host memory
    has room, and of computing again (`gpu_node.engine.steps.admission.held_kv`). So a cheap preemption is risked where
    a dear one is not.
    """

    retry_steps = 8

    def __init__(self, model: LoadedModel, blocks: BlockManager, max_num_seqs: int, costs: KvCosts) -> None:
        super().__init__(model, blocks, max_num_seqs)
        self._costs = costs
        self._at_risk: dict[str, int] = {}  # of those that run: blocks that each is predicted to give way with

    def _fits(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> bool:
        """By the peak where it fits, or nothing is known of costs yet."""
        demands = self._demands_beside(candidate, running)
        num_steps = steps_until_full(demands, self._model.block_size, self._blocks.num_usable_blocks)
        if num_steps is None or num_steps >= demands[-1].num_growth_tokens:
            return True  # none gives way, or not while it is here
        cost = self._costs.step_cost
        if cost is None:
            return False
        num_rows = sum(request.num_places for request in running)
        earned_s = num_steps * cost.step_s / (num_rows + candidate.num_places) * candidate.num_places
        held = self._held(candidate.num_tokens + num_steps, running)
        price_s = cheaper_s(held, self._costs)
        assert price_s is not None
        if SPARED_STEPS * earned_s <= price_s:
            return False
        self._at_risk[candidate.request_id] = held.num_blocks
        return True

    def _held(self, num_tokens: int, running: Collection[EngineRequest]) -> HeldKv:
        """Beside others that are at risk, for which host memory has to have room as well."""
        here = {request.request_id for request in running}
        self._at_risk = {name: num_blocks for name, num_blocks in self._at_risk.items() if name in here}
        num_free = max(0, self._blocks.num_free_host_blocks - sum(self._at_risk.values()))
        return HeldKv(num_tokens, -(-num_tokens // self._model.block_size), num_free)


class SwappableAdmission(_OtherAdmission):
    """What another rule admits, while host memory could take all that run at their full length.

    So a request that has to give way is swapped, nothing is ever computed again, and host memory bounds the batch:
    AdaptiveLLM's baseline vLLM_s (§4.3).
    """

    def __init__(self, inner: KvAdmission, model: LoadedModel, blocks: BlockManager, max_num_seqs: int) -> None:
        super().__init__(model, blocks, max_num_seqs)
        self._inner = inner

    def on_arrival(self, request: EngineRequest) -> None:
        """For both."""
        super().on_arrival(request)
        self._inner.on_arrival(request)

    def on_finish(self, num_output_tokens: int) -> None:
        """For both."""
        super().on_finish(num_output_tokens)
        self._inner.on_finish(num_output_tokens)

    def _fits(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> bool:
        """Both have to agree. What is swapped out already, and comes back by this, is in host memory's use."""
        num_held = 0
        if self._blocks.is_swapped_out(candidate.sequences[0].sequence_id):
            num_held = self._blocks.num_swap_in_blocks([one.sequence_id for one in candidate.holders])
        num_needed = sum(map(self._num_full_blocks, [*running, candidate]))
        has_room = num_needed <= self._blocks.num_free_host_blocks + num_held
        return has_room and self._inner.num_blocked_steps(candidate, running) == 0

    def _num_full_blocks(self, request: EngineRequest) -> int:
        """Of all its sequences at their limit, what they share counted for each: more than they will ever hold."""
        return request.num_places * -(-request.sequences[0].max_len // self._model.block_size)


def steps_until_full(demands: Sequence[KvDemand], block_size: int, num_usable_blocks: int) -> int | None:
    """After how many steps ``demands`` are predicted to hold more than the usable blocks; None where they never do.

    Between two ends each of those alive grows by a token a step, so the step is found on a straight line. Of the last
    block of each, half is taken to be empty: a price is paid for what is expected, not for the worst.
    """
    blocks = [block for demand in demands for block in demand.blocks]
    num_shared_blocks = len(blocks) - len(set(blocks))
    shortest_first = sorted(demands, key=lambda demand: demand.num_growth_tokens)
    num_tokens = sum(demand.num_tokens for demand in shortest_first)
    for num_ended, demand in enumerate(shortest_first):
        num_alive = len(shortest_first) - num_ended
        room = (num_usable_blocks + num_shared_blocks + 1) * block_size - 1 - num_tokens - num_alive * (block_size // 2)
        num_steps = room // num_alive  # that fit beside one another
        if num_steps < demand.num_growth_tokens:
            return max(0, num_steps)
        num_tokens -= demand.num_tokens
    return None


def kv_admission(model: LoadedModel, blocks: BlockManager, options: EngineOptions, costs: KvCosts) -> KvAdmission:
    """The rule that the configuration names."""
    match options.admission:
        case "peak":
            rule = KvAdmission(model, blocks, options.max_num_seqs)
        case "greedy":
            rule = GreedyAdmission(model, blocks, options.max_num_seqs)
        case "priced":
            rule = PricedAdmission(model, blocks, options.max_num_seqs, costs)
    if options.preemption == "swap_only":
        return SwappableAdmission(rule, model, blocks, options.max_num_seqs)
    return rule
