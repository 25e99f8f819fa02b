"""The engine of long simulations: decides as `gpu_node.engine` does, but jumps over steps in which nothing is decided.

For plain requests only: one choice, no two prompts that begin alike, one model at a time, the newest give way; all else
it refuses (`services.simulator.fast.plain`). A run of steps in which all sequences decode, none ends, none is admitted
and blocks do not run out is one event (`StepSpan`); any other step is carried out by itself (`FastScheduler`). Both
engines ask one rule of admission and one of preemption, learn lengths in one way, and a test holds that they give every
request the same times; what steps cost, this one knows, and the live one learns. Clients hear of first tokens and of
ends; the tokens between come with the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.move_rates import NUM_BLOCKS, NUM_REPEATS
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.kv_costs import KvCosts, MoveRates
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.memory.block_log import BlockChanges
from gpu_node.engine.requests.choices import error_chunk, lost_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import HandedOver, ImageError, Kept, SerialisedImage
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.predicted.executor import AnswerTokens
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from services.simulator.devices.span import StepSpan
from services.simulator.fast.growing import FastGrowing
from services.simulator.fast.parking import FastParking
from services.simulator.fast.plain import check_options
from services.simulator.fast.scheduler import FastScheduler
from services.simulator.fast.step_done import StepDone
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload

MAX_STEPS_TOLD = 1_024
"""Of a span, to who keeps the usual duration of a step: of those before, 1e-28 is left."""


class FastEngine:
    """One device and the requests of its current model. As `services.simulator.cluster.node_engine.NodeEngine`."""

    def __init__(self, device: SimulatedDevice, options: EngineOptions, answer_tokens: AnswerTokens) -> None:
        """Raises `FastEngineError` for options that it cannot follow."""
        check_options(options)
        self._device = device
        self._options = options
        self._answer_tokens = answer_tokens
        self._scheduler: FastScheduler | None = None
        self._spec: ModelSpec | None = None
        self._left: HostTier[None] = HostTier(options.host_models, lambda _: None)
        self._parking = FastParking(options.evicted_kv_bytes)
        self.growing = FastGrowing(self._parking, self._move)
        self._costs: KvCosts | None = None
        self._span: StepSpan | None = None
        self._chunks: list[OutputChunk] = []
        self._end_s = 0.0
        self._step_s = 0.0
        self._moves_s = 0.0
        self._moved_bytes = 0
        self._num_received = 0
        self._has_run = False  # the current model, since it was loaded
        self._learner: CostLearner | None = None  # of the current model, where it runs a pipeline

    # --- models and requests ------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there are requests."""
        return self._scheduler is not None and bool(self._scheduler.roster.requests)

    @property
    def num_preemptions(self) -> int:
        """Of the current model, since it was loaded."""
        return self._scheduler.num_preemptions if self._scheduler is not None else 0

    @property
    def counts(self) -> Counts:
        """Of the current model, since it was loaded. Of what it does not do, nothing is counted."""
        return self._scheduler.counts if self._scheduler is not None else Counts()

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Make a model the current one; no request may be left. `ModelTooLargeError` where it cannot run here."""
        assert not self.has_work, "drain, evict or reset first"
        if self._scheduler is None or self._scheduler.model.name != spec.name:
            model = self._device.model(spec.name).loaded(spec, self._options)
            if self._spec is not None:
                self._left.put(self._spec, None)
            self._left.take(spec)
            self._spec = spec
            self._costs = self._kv_costs(model)
            self._scheduler = FastScheduler(model, self._options, self._answer_tokens, self._costs)
            self.growing.serve(model, self._scheduler.roster)
            self._has_run, self._learner = False, None
        return self._scheduler.model

    def _kv_costs(self, model: LoadedModel) -> KvCosts:
        """Where preemptions ask for costs, copies are timed as they are live: the first step begins behind that."""
        bytes_per_s = self._device.kv_bytes_per_s
        if self._options.preemption == "adaptive":
            num_bytes = min(NUM_BLOCKS, model.num_blocks) * model.block_bytes
            self._moves_s += 2 * NUM_REPEATS * num_bytes / bytes_per_s
        learner = CostLearner(self._device.models[model.name].cost)
        return KvCosts(self._options, model.block_bytes, learner, MoveRates(bytes_per_s, bytes_per_s))

    @property
    def tiers(self) -> dict[str, str]:
        """Where the weights of models are, ``device`` or ``host``; those of others are on disk."""
        return self._left.tiers([self._spec.name] if self._spec is not None else [])

    def add(self, payload: Payload, image: SerialisedImage | None = None) -> list[OutputChunk]:
        """As `gpu_node.engine.engine.Engine.add`."""
        self._num_received += 1
        scheduler = self._scheduler
        if scheduler is None or scheduler.model.name != payload.model:
            self._parking.drop(payload.request_id)
            loaded = repr(scheduler.model.name) if scheduler is not None else "none"
            return [error_chunk(payload, f"model {payload.model!r} is not loaded here; loaded: {loaded}")]
        present, parked = scheduler.roster.attempt_of(payload.request_id), self._parking.get(payload.request_id)
        if (present is not None and present >= payload.attempt) or (parked and parked.attempt > payload.attempt):
            return []
        scheduler.roster.abort(payload.request_id)
        try:
            parked = self._parking.resume(payload, scheduler.model, image)
        except ImageError as error:
            return [lost_chunk(payload, str(error))]
        return scheduler.add(payload, parked)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests, and what is kept of them."""
        for request_id in request_ids:
            if self._scheduler is not None:
                self._scheduler.roster.abort(request_id)
            self._parking.drop(request_id)

    def reset(self) -> None:
        """Forget all requests, the evicted ones too."""
        if self._scheduler is not None:
            self._scheduler.roster.reset()
        self._parking.clear()

    def evict(self, request_ids: Iterable[str]) -> tuple[list[OutputChunk], list[Kept]]:
        """As `gpu_node.engine.engine.Engine.evict`; the chunks are tokens that the evicted had not been sent yet."""
        chunks: list[OutputChunk] = []
        kept: list[Kept] = []
        roster = self._scheduler.roster if self._scheduler is not None else None
        for request_id in dict.fromkeys(request_ids):
            parked = self._parking.get(request_id)
            is_here = roster is not None and roster.attempt_of(request_id) is not None
            if is_here and parked is None:
                assert roster is not None
                chunks += roster.tell(request_id)
                held = roster.held(request_id)
                begun = self.growing.take(request_id, held.num_computed_tokens, is_swapped=request_id in roster.swapped)
                parked = self._parking.keep(held, begun.number if begun is not None else 0, self.growing.yield_one)
                num_moved = parked.num_blocks if parked is not None else 0
                num_moved -= begun.num_blocks if parked is not None and begun is not None else 0
                if parked is not None and request_id in roster.swapped:  # what is the host's already costs nothing
                    num_moved = roster.swapped.num_late(request_id)
                self._move(num_moved * parked.block_bytes if parked is not None else 0)
            if is_here and roster is not None:
                roster.abort(request_id)
            if is_here or parked is not None:
                kept.append(Kept(request_id, parked.num_computed_tokens if parked is not None else 0))
        return chunks, kept

    def hand_over(self, request_ids: Iterable[str]) -> list[HandedOver]:
        """Give away what is kept of evicted requests; those that are back in line, or unknown, are left out."""
        images = []
        for request_id in request_ids:
            is_here = self._scheduler is not None and self._scheduler.roster.attempt_of(request_id) is not None
            handed_over = None if is_here else self._parking.give(request_id)
            if handed_over is not None:
                images.append(handed_over)
        return images

    def release(self, numbers: Iterable[int]) -> None:
        """The memory of images that were handed over is free."""
        numbers = list(numbers)
        self.growing.release(numbers)
        for number in numbers:
            self._parking.release(number)

    def tell_blocks_again(self) -> None:
        """No two prompts begin alike: nothing is cached."""

    def block_changes(self, most: int) -> BlockChanges:
        """Likewise."""
        del most
        return BlockChanges(self._spec.name if self._spec is not None else "")

    # --- time passes --------------------------------------------------------------------------------------------------

    def start(self, now: float) -> float:
        """Compute a span, or the next step if something happens in it; the time at which it is over."""
        assert self._scheduler is not None
        self._has_run = True
        scheduler = self._scheduler
        device = self._device.models[scheduler.model.name]
        num_steps = 0 if self._moves_s else scheduler.num_quiet_steps()
        if num_steps:
            batch = scheduler.roster.batch
            self._span = StepSpan(now, device.cost, len(batch), batch.num_context_tokens, num_steps)
            self._end_s = self._span.end_s(num_steps)
            num_tokens = batch.num_context_tokens
            self._learn(device, len(batch), num_tokens, num_tokens, self._span.step_s(0))
        else:
            done = scheduler.step()
            self._move(done.num_restored_bytes)
            for request_id in done.restored:
                self._parking.drop(request_id)
            self._step_s = self._duration_s(done, device)
            self._chunks = done.chunks
            self._end_s = now + self._step_s
        return self._end_s

    def _duration_s(self, done: StepDone, device: ModelOnDevice) -> float:
        """Of rows and moves, as `gpu_node.executors.predicted.executor.PredictedExecutor` has it; costs are told."""
        model = self._scheduler.model if self._scheduler is not None else None
        assert model is not None
        assert self._costs is not None
        size = done.num_tokens, done.num_context_tokens, done.num_attended_tokens
        rows_s = device.predict_s(*size)
        if done.num_tokens:
            self._learn(device, *size, rows_s)
        if not done.num_moved_blocks:
            moves_s, self._moves_s = self._moves_s, 0.0
            self._costs.observe_step(rows_s)
            return moves_s + rows_s
        rows_s = rows_s if done.num_tokens else 0.0
        copies_s = done.num_moved_blocks * model.block_bytes / self._device.kv_bytes_per_s
        swaps_s = max(0.0, copies_s - rows_s) if self._options.overlap_swaps else copies_s
        moves_s, self._moves_s = self._moves_s + swaps_s, 0.0
        if self._options.overlap_swaps:
            self._costs.observe_step(rows_s)
        else:
            self._costs.observe_moves(done.num_blocks_out, done.num_blocks_in, moves_s)
        return moves_s + rows_s

    def interrupt(self, now: float) -> float:
        """Cut the span behind the step that runs at ``now``."""
        if self._span is not None:
            self._span.num_steps = min(self._span.num_steps, self._span.num_ended(now) + 1)
            self._end_s = self._span.end_s(self._span.num_steps)
        return self._end_s

    def redraw(self) -> None:
        """Answers are as long as `AnswerTokens` says now; the span that is on is drawn."""
        if self._scheduler is not None:
            self._scheduler.redraw(self._span.num_steps - self._span.num_applied if self._span is not None else 0)

    def finish(self) -> list[OutputChunk]:
        """First tokens and ends."""
        chunks, self._chunks = self._chunks, []
        if self._span is not None:
            chunks = self._apply(self._span, self._span.num_steps)
            self._span = None
        return chunks

    def catch_up(self, now: float) -> EngineStats | None:
        """The state after the last step that is over by ``now``, if it has not been told yet."""
        if self._span is None:
            return None
        num_ended = min(self._span.num_ended(now), self._span.num_steps - 1)
        if num_ended > self._span.num_applied:
            chunks = self._apply(self._span, num_ended)
            assert not chunks, "a request that ends does so in the last step of a span"
        return self.stats()

    def flush(self, now: float) -> list[OutputChunk]:
        """All tokens that were drawn, as clients of a live engine would have them: before it dies."""
        self.catch_up(now)
        return self._scheduler.roster.tell_all() if self._scheduler is not None else []

    def num_untold_tokens(self, now: float) -> dict[str, int]:
        """What `flush` would tell of each request, and of those that do not run."""
        self.catch_up(now)
        return self._scheduler.roster.num_untold_tokens() if self._scheduler is not None else {}

    def _apply(self, span: StepSpan, num_steps: int) -> list[OutputChunk]:
        assert self._scheduler is not None
        num_new = num_steps - span.num_applied
        if self._options.preemption == "adaptive" and self._costs is not None:
            for step in range(max(span.num_applied, num_steps - MAX_STEPS_TOLD), num_steps):
                self._costs.observe_step(span.step_s(step))
        span.num_applied = num_steps
        self._step_s = span.step_s(num_steps - 1)
        return self._scheduler.pass_steps(num_new)

    def _move(self, num_bytes: int) -> None:
        self._moved_bytes += num_bytes
        self._moves_s += num_bytes / self._device.kv_bytes_per_s

    def _learn(
        self, device: ModelOnDevice, num_tokens: int, num_context_tokens: int, num_attended_tokens: int, seconds: float
    ) -> None:
        """What steps cost, where that is more than the four numbers that are known; of a span, the first step tells."""
        if device.pipeline is not None:
            self._learner = self._learner or CostLearner(device.cost)
            self._learner.learn(num_tokens, num_context_tokens, num_attended_tokens, seconds)

    def _cost(self) -> StepCost | None:
        """As far as it is known, of the current model."""
        if self._scheduler is None or not self._has_run:
            return None
        return self._learner.cost if self._learner else self._device.models[self._scheduler.model.name].cost

    def stats(self) -> EngineStats:
        """The state between two steps."""
        scheduler = self._scheduler
        return EngineStats(
            num_running=len(scheduler.roster.running) if scheduler is not None else 0,
            num_waiting=len(scheduler.roster.waiting) if scheduler is not None else 0,
            num_free_blocks=scheduler.roster.blocks.num_free if scheduler is not None else 0,
            num_admittable=scheduler.num_admittable if scheduler is not None else 0,
            step_s=self._step_s,
            num_received=self._num_received,
            kv_bytes_per_s=self._device.kv_bytes_per_s if self._moved_bytes else 0.0,
            cost=self._cost(),
            swapped_kv_bytes=self._swapped_kv_bytes,
            evicted_kv_bytes=self._parking.num_bytes,
        )

    @property
    def _swapped_kv_bytes(self) -> int:
        if self._scheduler is None:
            return 0
        return self._scheduler.roster.swapped.num_used * self._scheduler.model.block_bytes

    def check(self) -> None:
        """Assert that the books balance."""
        if self._scheduler is not None:
            self._scheduler.roster.check()
        self._parking.check()
