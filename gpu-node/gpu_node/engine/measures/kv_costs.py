"""What giving way costs a request: computing its keys and values again, or moving them out and in (AdaptiveLLM, §3.2).

There are two costs of each, by how the engine runs:

                        recompute                                 swap
    plain forms         a prompt step of the sequence alone       KV bytes / D2H bandwidth + KV bytes / H2D bandwidth
                        (§3.2, by regression)                     (equations 2-4), of blocks that have to move
    chunked, beside     what its rows add to steps that run       what of each copy does not fit beside the step that
                        anyway                                    runs meanwhile

The first of each is the paper's. A plain form (`EngineOptions.chunked_prefill`, `EngineOptions.overlap_swaps`) is
charged by the paper's cost, the other by what it adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.plan import ScheduledSequence, StepPlan, StepResult
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.cost_table import CostTable, LearntRatio
from gpu_node.engine.measures.draft_costs import DraftCosts
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost

UNKNOWN_BYTES_PER_S = 10e9
"""Between device and host until it has been measured: what a copy by one core of a server gives."""
STEP_MEMORY = 16
"""Steps after which the usual duration of a step has forgotten one."""
DELAYED_ROWS = 3
"""What a swap costs beside its moves, where prompts have steps of their own: a prompt's step draws a token, but a
request that is swapped in has no row in that step, and none that waits behind it begins in it. Fitted to simulated
loads: with 2, `adaptive` is .0005 behind `recompute` where both cost the same, with 4 nothing changes."""
RETURN_MEMORY = 16
"""Likewise of requests that come back, and what of theirs was cached."""


@dataclass(frozen=True, slots=True)
class KvCostTables:
    """What `treadle profile` has learnt of a model on a device, by tokens of a sequence and by blocks."""

    prompt: CostTable
    """A prompt step alone, by tokens."""
    chunk: CostTable
    """What so many rows of a prompt add to a step in which others decode."""
    move_out: CostTable
    """Of blocks to host memory, in the computing queue."""
    move_in: CostTable


@dataclass(frozen=True, slots=True)
class MoveRates:
    """Measured when a model was loaded. 0.0 where blocks cannot be moved."""

    out_bytes_per_s: float = UNKNOWN_BYTES_PER_S
    in_bytes_per_s: float = UNKNOWN_BYTES_PER_S


class KvCosts:
    """Of one model on one device; learns from each step."""

    def __init__(
        self,
        options: EngineOptions,
        block_bytes: int,
        learner: CostLearner,
        rates: MoveRates | None = None,
        tables: KvCostTables | None = None,
    ) -> None:
        """Without ``tables`` recomputing is predicted from the learnt step cost, and copies from ``rates``."""
        self._options = options
        self._block_bytes = block_bytes
        self._learner = learner
        self._rates = rates or MoveRates()
        self._tables = tables
        self._usual_step_s = 0.0
        self._row_s = 0.0
        self._step_share = 1.0
        self._cached_share = 0.0
        self.drafts = DraftCosts()
        """Of guessed tokens."""
        self._prompt_ratio, self._chunk_ratio, self._move_ratio = LearntRatio(), LearntRatio(), LearntRatio()

    @property
    def step_cost(self) -> StepCost | None:
        """As far as it is known by now."""
        return self._learner.cost

    @property
    def usual_step_s(self) -> float:
        """How long a step takes of late; 0.0 before the first."""
        return self._usual_step_s

    # --- predictions --------------------------------------------------------------------------------------------------

    def num_still_cached(self, num: int) -> float:
        """Of so many blocks or tokens of one that gives way, the mean of what will be on the device when it comes back.

        Its blocks are free then, and given up from the tail on as others need them; it may be back before.
        """
        return self._cached_share * num

    def recompute_s(self, num_tokens: int, num_kept_tokens: float = 0) -> float | None:
        """Of a sequence so long, whose first ``num_kept_tokens`` stay cached; None while nothing is known."""
        if self._options.chunked_prefill:
            return self._chunks_s(num_tokens, num_kept_tokens)
        return self._prompt_step_s(num_tokens, num_kept_tokens)

    def _prompt_step_s(self, num_tokens: int, num_kept_tokens: float) -> float | None:
        """A prompt step alone, of whose fixed part the requests that usually share such a step pay theirs."""
        if self._tables is not None:
            table = self._tables.prompt
            rows_s = table.at(num_tokens) - table.at(num_kept_tokens)
            return (table.at(0) * self._step_share + rows_s) * self._prompt_ratio.value
        cost = self.step_cost
        if cost is None:
            return None
        return cost.predict_s(*_sizes(num_tokens, num_kept_tokens)) - cost.step_s * (1 - self._step_share)

    def _chunks_s(self, num_tokens: int, num_kept_tokens: float) -> float | None:
        if self._tables is not None:
            table = self._tables.chunk
            return max(0.0, table.at(num_tokens) - table.at(num_kept_tokens)) * self._chunk_ratio.value
        cost = self.step_cost
        return None if cost is None else cost.predict_s(*_sizes(num_tokens, num_kept_tokens)) - cost.step_s

    def swap_s(self, num_blocks: int, num_cached_blocks: float = 0, num_copied_blocks: float = 0) -> float:
        """Out of so many blocks, and in again of those that are not cached then; infinite where none can be moved.

        Of ``num_copied_blocks``, at the beginning like the cached ones, host memory has the content. Where copies are
        made late, what is cached then is not copied either.
        """
        num_spared = num_copied_blocks
        if self._options.swap_copies == "late":
            num_spared = max(num_spared, num_cached_blocks)
        out_s, in_s = self._out_s(num_blocks - num_spared), self._in_s(num_blocks - num_cached_blocks)
        if not self._options.chunked_prefill:
            in_s += DELAYED_ROWS * self._row_s
        if self._options.overlap_swaps:
            return max(0.0, out_s - self._usual_step_s) + max(0.0, in_s - self._usual_step_s)
        return out_s + in_s

    def _out_s(self, num_blocks: float) -> float:
        if self._tables is not None:
            return self._tables.move_out.at(num_blocks) * self._move_ratio.value if num_blocks else 0.0
        return self._rated_s(num_blocks, self._rates.out_bytes_per_s)

    def _in_s(self, num_blocks: float) -> float:
        if self._tables is not None:
            return self._tables.move_in.at(num_blocks) * self._move_ratio.value if num_blocks else 0.0
        return self._rated_s(num_blocks, self._rates.in_bytes_per_s)

    def _rated_s(self, num_blocks: float, bytes_per_s: float) -> float:
        """Equations 2 to 4: whole blocks over the bandwidth of their direction."""
        if bytes_per_s <= 0:
            return float("inf")
        return num_blocks * self._block_bytes / bytes_per_s * self._move_ratio.value

    # --- what steps tell ----------------------------------------------------------------------------------------------

    def observe(self, plan: StepPlan, result: StepResult, waited_s: float) -> None:
        """A step is over, before which the device had waited ``waited_s`` for its host."""
        took_s = result.duration_s + waited_s
        if (plan.moves_out or plan.swaps_in) and not self._options.overlap_swaps:  # it took more than its rows do
            self._observe_moves(plan, result)
            return
        self.drafts.observe(plan, took_s, self.step_cost)
        self._learner.observe(plan, took_s)
        self.observe_step(took_s)
        prompts = [part for part in plan.sequences if not part.is_decode]
        if plan.sequences and not prompts and not plan.num_draft_tokens:
            self._row_s += (took_s / len(plan.sequences) - self._row_s) / (STEP_MEMORY if self._row_s else 1)
        if prompts:
            self._step_share += (1 / len(prompts) - self._step_share) / STEP_MEMORY
        if self._tables is not None and len(prompts) == 1:
            self._observe_prompt(prompts[0], plan, took_s, self._tables)

    def observe_return(self, num_blocks: int, num_cached_blocks: int) -> None:
        """One is back that held so many full blocks when it gave way, of which so many were on the device still."""
        if num_blocks:
            self._cached_share += (num_cached_blocks / num_blocks - self._cached_share) / RETURN_MEMORY

    def observe_step(self, took_s: float) -> None:
        """A step took so long, copies in the computing queue not among it."""
        self._usual_step_s += (took_s - self._usual_step_s) / (STEP_MEMORY if self._usual_step_s else 1)

    def observe_moves(self, num_blocks_out: int, num_blocks_in: int, took_s: float) -> None:
        """In the computing queue, so many blocks took so long."""
        predicted_s = self._out_s(num_blocks_out) + self._in_s(num_blocks_in)
        self._move_ratio.observe(took_s, predicted_s / self._move_ratio.value)

    def _observe_moves(self, plan: StepPlan, result: StepResult) -> None:
        """In the computing queue a step lasts as long as its copies longer; beside it, nothing is seen of them."""
        cost = self.step_cost
        if cost is None:
            return
        sizes = plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens, plan.num_remote_tokens
        rows_s = cost.predict_s(*sizes)
        own_s = result.moves_s or result.duration_s - (rows_s if plan.sequences else 0.0)
        self.observe_moves(len(plan.moves_out), len(plan.swaps_in), own_s)

    def _observe_prompt(self, prompt: ScheduledSequence, plan: StepPlan, took_s: float, tables: KvCostTables) -> None:
        """A prompt step alone tells of that table; one chunk beside decodes, of the other, less what decodes take."""
        num_tokens = prompt.start + len(prompt.token_ids)
        if len(plan.sequences) == 1 and prompt.start == 0:
            self._prompt_ratio.observe(took_s, tables.prompt.at(num_tokens))
        elif (cost := self.step_cost) is not None and len(plan.sequences) > 1:
            num_others = plan.num_tokens - len(prompt.token_ids)
            context = plan.num_context_tokens - num_tokens
            decodes_s = cost.predict_s(num_others, context, context)
            self._chunk_ratio.observe(took_s - decodes_s, tables.chunk.at(num_tokens) - tables.chunk.at(prompt.start))


def _sizes(num_tokens: int, num_kept_tokens: float) -> tuple[float, float, float]:
    """Rows, context and pairs of the rows behind what is kept, in one go."""
    num_rows = num_tokens - num_kept_tokens
    return num_rows, num_tokens, num_rows * num_kept_tokens + num_rows * (num_rows + 1) / 2
