"""The engine: one device, one loaded model, and the requests that run on it, one step at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gpu_node.engine.choices import error_chunk
from gpu_node.engine.device_time import DeviceTime
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import StepPlan
from gpu_node.engine.protocol import EngineStats
from gpu_node.engine.roster import MAX_STEPS_IN_FLIGHT
from gpu_node.engine.scheduler import Scheduler
from gpu_node.engine.throughput import Throughput
from gpu_node.executors.executor import Executor, PendingStep
from shared.config import EngineOptions, ModelSpec
from shared.messages import Chunk, Payload


class EngineBusyError(RuntimeError):
    """The model cannot be changed while there are sequences of the one that is loaded."""


class Engine:
    """Joins bookkeeping and execution; nothing else knows both."""

    def __init__(self, executor: Executor, options: EngineOptions) -> None:
        self._executor = executor
        self._options = options
        self._scheduler: Scheduler | None = None
        self._throughput = Throughput()
        self._step_s = 0.0
        self._in_flight: deque[tuple[StepPlan, PendingStep, bool]] = deque()
        self._is_busy = False  # ever since the last step was submitted
        self._num_ahead = MAX_STEPS_IN_FLIGHT - 1 if options.async_scheduling else 0
        self._num_received = 0
        self.device_time = DeviceTime()
        self.model: LoadedModel | None = None

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do: requests, or steps whose outcome is not taken in yet."""
        return bool(self._in_flight) or (self._scheduler is not None and self._scheduler.has_work)

    @property
    def num_preemptions(self) -> int:
        """Preemptions since the model was loaded."""
        return self._scheduler.num_preemptions if self._scheduler else 0

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Replace the loaded model; its blocks and cached prefixes are gone. The one that is loaded stays as it is.

        Raises `EngineBusyError` while there are sequences, `ModelFileError` or `ModelTooLargeError` when the model
        cannot be used; then nothing has changed.
        """
        if self.model is not None and self.model.name == spec.name:
            return self.model
        if self._scheduler is not None and self._scheduler.has_work:
            assert self.model is not None
            raise EngineBusyError(f"cannot load {spec.name!r}: {self.model.name!r} has sequences; drain or reset first")
        while self._in_flight:
            self._collect()  # of requests that are gone
        model = self._executor.load_model(spec)
        self.model = model
        self._scheduler = Scheduler(model, self._options)
        self._throughput = Throughput()
        return model

    def add(self, payload: Payload) -> list[Chunk]:
        """Queue a request. What ends at once is told: a request that can never run, choices that were complete already.

        A newer attempt replaces an older one. The same attempt again, or an older one, changes nothing.
        """
        self._num_received += 1
        self._is_busy = self._is_busy and self.has_work
        if self._scheduler is None:
            return [error_chunk(payload, "no model is loaded")]
        present = self._scheduler.attempt_of(payload.request_id)
        if present is not None and present >= payload.attempt:
            return []
        self._scheduler.abort(payload.request_id)
        return self._scheduler.add(payload)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests and free what they hold; unknown ones are ignored."""
        if self._scheduler is not None:
            for request_id in request_ids:
                self._scheduler.abort(request_id)

    def reset(self) -> None:
        """Forget all requests; the model stays."""
        if self._scheduler is not None:
            self._scheduler.reset()

    def step(self, now: float) -> list[Chunk]:
        """Plan and submit a step, then take in the oldest that is due; returns new tokens and ends.

        ``now`` in seconds, for the policies. With asynchronous scheduling the step just submitted is due only at the
        next call, or when nothing could be planned behind it: the device computes it while the host takes in the one
        before, tells the agent and plans the next.
        """
        assert self._scheduler is not None
        plan = self._scheduler.schedule(now)
        if not plan.is_empty:
            self._in_flight.append((plan, self._executor.submit(plan), self._is_busy))
            self._is_busy = True
        is_due = len(self._in_flight) > (0 if plan.is_empty else self._num_ahead)
        return self._collect() if is_due else []

    def _collect(self) -> list[Chunk]:
        """Wait for the oldest step in flight and take in what it computed."""
        assert self._scheduler is not None
        plan, pending, follows = self._in_flight.popleft()
        result = pending.result()
        self.device_time.observe(result, follows=follows)
        self._step_s = result.duration_s
        self._throughput.observe(len(result.token_ids), result.duration_s)
        return self._scheduler.commit(plan, result)

    def stats(self) -> EngineStats:
        """The state between two steps."""
        scheduler = self._scheduler
        return EngineStats(
            num_running=scheduler.num_running if scheduler else 0,
            num_waiting=scheduler.num_waiting if scheduler else 0,
            num_free_blocks=scheduler.blocks.num_free_blocks if scheduler else 0,
            num_admittable=scheduler.num_admittable if scheduler else 0,
            tokens_per_s=self._throughput.tokens_per_s,
            step_s=self._step_s,
            num_received=self._num_received,
        )

    def check(self) -> None:
        """Assert that the books balance."""
        if self._scheduler is not None:
            self._scheduler.check()
