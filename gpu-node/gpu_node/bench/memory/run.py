"""One policy under pressure: a scheduler and an executor, from the first request to the last token."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_node.bench.memory.timed import TimedDecisions
from gpu_node.bench.memory.workload import PressureRequest
from gpu_node.engine.border.executor import Executor, PendingStep
from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.kv_costs import KvCosts, MoveRates
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.steps.scheduler import Scheduler
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload, Sampling

_FIRST_TOKEN = 3
"""Of prompts: below are the ends of many vocabularies."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    seconds: float
    requests_per_s: float
    weighted_turnaround: float
    """Mean of (finish - send) / (finish - first scheduled) (AdaptiveLLM, equation 5)."""
    num_preemptions: int
    num_swapped: int
    num_recomputed: int
    decision_share: float


class PressureRun:
    """Requests that are all there from the start, at time 0.0."""

    def __init__(
        self,
        executor: Executor,
        options: EngineOptions,
        spec: ModelSpec,
        requests: Sequence[PressureRequest],
        prior: StepCost | None = None,
        rates: MoveRates | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Without ``clock``, a step takes what the executor predicts; with one, the next step is planned meanwhile."""
        self._executor = executor
        self._model = executor.load_model(spec)
        self._costs = KvCosts(options, self._model.block_bytes, CostLearner(prior), rates)
        self._decisions = TimedDecisions()
        self._scheduler = Scheduler(self._model, options, costs=self._costs, decide=self._decisions)
        self._requests = requests
        self._clock = clock
        self._now = 0.0
        self._begun_s: list[float | None] = [None] * len(requests)
        self._ended_s = [0.0] * len(requests)

    def outcome(self, advance: Callable[[int], None]) -> Outcome:
        """Run to the end; ``advance`` hears of requests that have ended."""
        started_s = self._clock() if self._clock else 0.0
        for number, request in enumerate(self._requests):
            refused = self._scheduler.add(self._payload(number, request))
            assert not refused, refused
        num_ahead = 0 if self._clock is None else 1
        in_flight: deque[tuple[StepPlan, PendingStep]] = deque()
        while self._scheduler.has_work or in_flight:
            plan = self._scheduler.schedule(self._now)
            if not plan.is_empty:
                self._begin(plan)
                in_flight.append((plan, self._executor.submit(plan)))
            while len(in_flight) > (0 if plan.is_empty else num_ahead):
                plan_over, pending = in_flight.popleft()
                result = pending.result()
                self._now = self._clock() - started_s if self._clock else self._now + result.moves_s + result.duration_s
                self._costs.observe(plan_over, result, 0.0)
                advance(self._end(self._scheduler.commit(plan_over, result)))
                if plan.is_empty:
                    break
        return self._summary()

    def _payload(self, number: int, request: PressureRequest) -> Payload:
        """Prompts that begin with their number, so that none is cached for another."""
        size = self._model.vocab_size - _FIRST_TOKEN
        digits = [number % size, number // size % size]
        prompt = [_FIRST_TOKEN + digits[min(place, 1)] for place in range(request.num_prompt_tokens)]
        sampling = Sampling(max_tokens=request.num_output_tokens, temperature=0.0, ignore_eos=True, seed=number)
        return Payload(str(number), 0, "", self._model.name, prompt, sampling)

    def _begin(self, plan: StepPlan) -> None:
        for part in plan.sequences:  # one a request, so sequences are numbered as these are
            if self._begun_s[part.sequence_id] is None:
                self._begun_s[part.sequence_id] = self._now

    def _end(self, chunks: Sequence[OutputChunk]) -> int:
        ended = [int(chunk.request_id) for chunk in chunks if chunk.finish_reason]
        for number in ended:
            self._ended_s[number] = self._now
        return len(ended)

    def _summary(self) -> Outcome:
        waits = [
            end_s / (end_s - begun_s)
            for begun_s, end_s in zip(self._begun_s, self._ended_s, strict=True)
            if begun_s is not None
        ]
        counts = self._scheduler.counts
        return Outcome(
            seconds=self._now,
            requests_per_s=len(self._requests) / self._now,
            weighted_turnaround=sum(waits) / len(waits),
            num_preemptions=counts.num_preemptions,
            num_swapped=counts.num_preemptions - counts.num_recomputed,
            num_recomputed=counts.num_recomputed,
            decision_share=self._decisions.watch.total_s / self._now,
        )
