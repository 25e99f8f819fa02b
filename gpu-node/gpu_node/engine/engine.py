"""The engine: one device, one loaded model, and the requests that run on it, one step at a time."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.protocol import EngineStats
from gpu_node.engine.scheduler import Scheduler
from gpu_node.engine.throughput import Throughput
from gpu_node.executors.executor import Executor
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
        self._num_received = 0
        self.model: LoadedModel | None = None

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self._scheduler is not None and self._scheduler.has_work

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
        if self.has_work:
            assert self.model is not None
            raise EngineBusyError(f"cannot load {spec.name!r}: {self.model.name!r} has sequences; drain or reset first")
        model = self._executor.load_model(spec)
        self.model = model
        self._scheduler = Scheduler(model, self._options)
        self._throughput = Throughput()
        return model

    def add(self, payload: Payload) -> Chunk | None:
        """Queue a request; a chunk that ends it comes back at once if it can never run, or was complete already.

        A newer attempt replaces an older one. The same attempt again, or an older one, changes nothing.
        """
        self._num_received += 1
        if self._scheduler is None:
            return Chunk(payload.request_id, payload.attempt, 0, [], "error", "no model is loaded", is_last=True)
        present = self._scheduler.attempt_of(payload.request_id)
        if present is not None and present >= payload.attempt:
            return None
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
        """Run one step; returns new tokens and ends. ``now`` in seconds, for the policies."""
        assert self._scheduler is not None
        plan = self._scheduler.schedule(now)
        result = self._executor.submit(plan).result()
        chunks = self._scheduler.commit(plan, result)
        self._step_s = result.duration_s
        self._throughput.observe(sum(len(chunk.token_ids) for chunk in chunks), result.duration_s)
        return chunks

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
