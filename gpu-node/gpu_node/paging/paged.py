"""Our engine's own scheduler and block manager on the lengths of a trace: not a model of them, but they themselves.

Only the model is made up. It ends each answer where the trace says, with a stop token, so the scheduler knows no more
of lengths than it does in life: what requests may use at most, and how long those before them became.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.steps.scheduler import Scheduler
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.paging.server import MAX_NUM_SEQS, OPT_13B_A100, Memory, SchemeStep
from gpu_node.paging.trace import TraceRequest
from gpu_node.paging.usage import SlotUsage, held_usage
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload, Sampling

STEP_TOKENS = 2560
"""Budget of a step. Above `MAX_NUM_SEQS`, so every running request is in every step."""

_MODEL = "lengths"
_VOCAB_SIZE = 1 << 20
_STOP = _VOCAB_SIZE  # drawn by no other request


class PagedServer:
    """Requests in blocks. Each prompt repeats a token of its own, so no two requests share a prefix."""

    name = "Treadle (paged)"

    def __init__(self, memory: Memory, block_size: int) -> None:
        options = EngineOptions(
            block_size=block_size,
            kv_cache_bytes=memory.num_slots * memory.token_bytes,
            max_num_seqs=MAX_NUM_SEQS,
            step_tokens=STEP_TOKENS,
        )
        self._executor = PredictedExecutor(OPT_13B_A100, options, memory.token_bytes, _VOCAB_SIZE)
        self._model = self._executor.load_model(ModelSpec(name=_MODEL, source="", max_model_len=memory.max_tokens))
        self._scheduler = Scheduler(self._model, options)
        self._num_cut_off_slots = memory.num_slots - self._model.num_blocks * block_size
        self._requests: list[TraceRequest] = []  # by number, which is the sequence's and the draw's seed as well

    @property
    def num_preemptions(self) -> int:
        """How often the scheduler took a request's blocks away."""
        return self._scheduler.num_preemptions

    def add(self, request: TraceRequest) -> None:
        """Queue a request that may use all the model takes."""
        number = len(self._requests)
        assert number < _VOCAB_SIZE
        self._requests.append(request)
        sampling = Sampling(
            max_tokens=self._model.max_model_len - request.input_tokens, seed=number, stop_token_ids=[_STOP]
        )
        prompt = [number] * request.input_tokens
        refused = self._scheduler.add(Payload(str(number), 0, "", _MODEL, prompt, sampling))
        assert not refused, refused

    def step(self, now_s: float) -> SchemeStep:
        """One step of the scheduler."""
        plan = self._scheduler.schedule(now_s)
        num_running, num_waiting = self._scheduler.num_running, self._scheduler.num_waiting
        assert len(plan.sequences) == num_running
        usage = self._usage(plan)
        result = self._executor.submit(plan).result()
        chunks = self._scheduler.commit(plan, self._stopped(plan, result))
        return SchemeStep(
            duration_s=result.duration_s,
            num_running=num_running,
            num_waiting=num_waiting,
            usage=usage,
            num_finished=sum(chunk.finish_reason != "" for chunk in chunks),
        )

    def check(self) -> None:
        """Assert that the scheduler's books balance."""
        self._scheduler.check()

    def _stopped(self, plan: StepPlan, result: StepResult) -> StepResult:
        """The executor's tokens, but a stop where an answer of the trace ends."""
        token_ids = dict(result.token_ids)
        for part in plan.sequences:
            if part.draws and part.draws[0].position + 1 == self._requests[part.draws[0].sampling.seed].output_tokens:
                token_ids[part.sequence_id] = _STOP
        return StepResult(token_ids, result.duration_s)

    def _usage(self, plan: StepPlan) -> SlotUsage:
        block_size = self._model.block_size
        held = (
            held_usage(
                num_states=part.start + len(part.token_ids),
                num_slots_at_end=self._requests[part.sequence_id].num_slots,
                num_asked=len(part.block_table) * block_size,
                num_allocated=len(part.block_table) * block_size,
            )
            for part in plan.sequences
        )
        num_free_blocks = self._scheduler.blocks.num_free_blocks
        free = SlotUsage(stranded=self._num_cut_off_slots, headroom=num_free_blocks * block_size)
        usage = reduce(add, held, free)
        assert usage.total == self._model.num_blocks * block_size + self._num_cut_off_slots, "no block is shared"
        return usage
