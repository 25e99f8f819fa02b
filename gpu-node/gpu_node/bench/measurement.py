"""One point measured on an engine: its requests added at once, steps until nothing is left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_node.bench.point import BenchPoint
from gpu_node.bench.step_log import LoggedStep, LoggingExecutor
from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import OutputChunk
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.errors import OperatorError
from shared.messages.requests.payload import Payload, Sampling

Advance = Callable[[int], None]
"""Hears how many rows have been submitted since it was called last."""


class MeasurementError(OperatorError, RuntimeError):
    """A point that this model or engine cannot run."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a point."""

    seconds: float
    first_tokens_s: float
    """Until every request has its first token."""
    steps: tuple[LoggedStep, ...]
    num_preemptions: int


class Bench:
    """An engine with one model, and the prompts that it is asked."""

    def __init__(self, executor: Executor, options: EngineOptions, spec: ModelSpec) -> None:
        self._log = LoggingExecutor(executor)
        self._engine = Engine(self._log, options)
        self._numbers = random.Random(0)  # noqa: S311 - the same prompts on every machine
        self.model: LoadedModel = self._engine.load_model(spec)

    def check(self, points: Sequence[BenchPoint]) -> None:
        """`MeasurementError` for the first point that is too long for the model."""
        for point in points:
            if point.num_tokens > self.model.max_model_len:
                raise MeasurementError(
                    f"{point}: a request of {point.num_tokens} tokens; {self.model.name!r} takes "
                    f"{self.model.max_model_len}"
                )

    def measure(self, point: BenchPoint, advance: Advance) -> Measurement:
        """Run a point. Prompts are random and never the same twice, so that no cached prefix helps."""
        payloads = self._payloads(point)
        self._log.steps.clear()
        num_preemptions = self._engine.num_preemptions
        began: set[str] = set()
        first_tokens_s, num_tokens, num_rows = 0.0, 0, self._log.num_rows
        started_s = time.perf_counter()
        for payload in payloads:
            _num_tokens(point, self._engine.add(payload))  # which raises if it is refused
        while self._engine.has_work:
            chunks = self._engine.step(time.monotonic())
            num_tokens += _num_tokens(point, chunks)
            if len(began) < point.num_requests:
                began.update(chunk.request_id for chunk in chunks if chunk.token_ids)
                first_tokens_s = time.perf_counter() - started_s
            advance(self._log.num_rows - num_rows)
            num_rows = self._log.num_rows
        seconds = time.perf_counter() - started_s
        assert num_tokens == point.num_requests * point.num_output_tokens, "every request runs to its last token"
        return Measurement(
            seconds, first_tokens_s, tuple(self._log.steps), self._engine.num_preemptions - num_preemptions
        )

    def _payloads(self, point: BenchPoint) -> list[Payload]:
        sampling = Sampling(max_tokens=point.num_output_tokens, temperature=0.0, ignore_eos=True)
        prompts = [
            [self._numbers.randrange(self.model.vocab_size) for _ in range(point.num_prompt_tokens)]
            for _ in range(point.num_requests)
        ]
        return [
            Payload(str(number), 0, "bench", self.model.name, prompt, sampling) for number, prompt in enumerate(prompts)
        ]


def _num_tokens(point: BenchPoint, chunks: Sequence[OutputChunk]) -> int:
    for chunk in chunks:
        if chunk.error:
            raise MeasurementError(f"{point}: request {chunk.request_id}: {chunk.error}")
    return sum(len(chunk.token_ids) for chunk in chunks)
