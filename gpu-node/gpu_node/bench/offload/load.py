"""A load of requests that never ends, and what an engine made of it in a stretch of time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import AbortRequests, EngineEvent, ImageFile, RunAttempt, StepReport
from shared.errors import OperatorError
from shared.messages.requests.payload import Payload, Sampling


class BrokenLoadError(OperatorError):
    """What is measured is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and its KV of the prompt where that was computed before."""

    payload: Payload
    image: ImageFile | None = None
    told: tuple[int, ...] = ()
    """Of its answer, while the image was made: those that go on with the image begin behind them."""


@dataclass(slots=True)
class EndlessLoad:
    """``num_kept`` of some requests are at an engine at any time; one that ends begins anew at the end of the line."""

    end: EngineEnd
    requests: Sequence[Prepared]
    num_kept: int
    hear: Callable[[EngineEvent], StepReport | None]
    """What the engine says, handed through."""
    every_s: float = 0.0
    """One request begins so often, and ends as it may; 0: as soon as one ends, another begins."""
    clock: Callable[[], float] = time.monotonic
    line: list[Prepared] = field(default_factory=list)
    running: dict[str, Prepared] = field(default_factory=dict)
    num_tokens: int = 0
    tokens_at: dict[str, list[int]] = field(default_factory=dict)
    """Of each request that runs, so far."""
    answers: dict[str, list[int]] = field(default_factory=dict)
    """The last whole answer of each request."""
    stats: EngineStats | None = None
    next_at_s: float = 0.0

    @property
    def told(self) -> dict[str, list[int]]:
        """Of each request, the last whole answer, or what came of it."""
        return {**self.tokens_at, **self.answers}

    def begin(self) -> None:
        """Send the first of them."""
        self.end.hear = self.take
        self.line = list(self.requests)
        for _ in range(self.num_kept):
            self._send_next()
        self.next_at_s = self.clock() + self.every_s

    def tick(self) -> None:
        """Begin what is due."""
        if self.every_s and self.line and self.clock() >= self.next_at_s:
            self.next_at_s += self.every_s
            self._send_next()

    def stop(self) -> None:
        """Take all of them away."""
        self.end.send(AbortRequests(list(self.running)))
        self.running.clear()

    def _send_next(self) -> None:
        one = self.line.pop(0)
        self.running[one.payload.request_id] = one
        self.tokens_at[one.payload.request_id] = list(one.told)
        self.end.send(RunAttempt(one.payload, one.image))

    def take(self, event: EngineEvent) -> None:
        """What the engine says."""
        report = self.hear(event)
        if report is None:
            return
        self.stats = report.stats
        for chunk in report.chunks:
            if chunk.request_id not in self.running:
                continue  # it was taken away meanwhile
            if chunk.error:
                raise BrokenLoadError(f"request {chunk.request_id} ends without its answer: {chunk.error}")
            self.num_tokens += len(chunk.token_ids)
            self.tokens_at[chunk.request_id] += chunk.token_ids
            if chunk.is_last:
                self.answers[chunk.request_id] = self.tokens_at[chunk.request_id]
                self.line.append(self.running.pop(chunk.request_id))
                if not self.every_s:
                    self._send_next()


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one engine did in a stretch of time."""

    seconds: float
    num_tokens: int
    busy_s: float
    served_s: float
    waited_s: float
    mean_running: float

    @property
    def tokens_per_s(self) -> float:
        """Of output."""
        return self.num_tokens / self.seconds

    @property
    def tpot_s(self) -> float:
        """Between two tokens of a request."""
        return self.seconds * self.mean_running / self.num_tokens if self.num_tokens else 0.0

    @property
    def served_share(self) -> float:
        """Of the time in steps, what went to the other engine."""
        return self.served_s / self.busy_s if self.busy_s else 0.0


def watch(loads: Sequence[EndlessLoad], seconds: float, clock: Callable[[], float] = time.monotonic) -> list[Stretch]:
    """Let engines work for so long; what each did."""
    before = [(load.num_tokens, _times(load)) for load in loads]
    began_s, sums, num_looks = clock(), [0.0] * len(loads), 0
    while clock() - began_s < seconds:
        for place, load in enumerate(loads):
            load.tick()
            load.end.listen(0.002)
            sums[place] += load.stats.num_running if load.stats is not None else 0
        num_looks += 1
    elapsed_s = clock() - began_s
    stretches = []
    for load, (num_tokens, times), running in zip(loads, before, sums, strict=True):
        busy, served, waited = (now - then for now, then in zip(_times(load), times, strict=True))
        stretches.append(
            Stretch(elapsed_s, load.num_tokens - num_tokens, busy, served, waited, running / max(1, num_looks))
        )
    return stretches


def _times(load: EndlessLoad) -> tuple[float, float, float]:
    stats = load.stats
    return (stats.busy_s, stats.served_s, stats.waited_s) if stats is not None else (0.0, 0.0, 0.0)


def made_up(model: str, name: str, lengths: Sequence[tuple[int, int]], vocabulary: int, seed: int) -> list[Payload]:
    """Requests of these lengths of prompt and output, of random tokens, greedy to the end."""
    numbers = random.Random(seed)  # noqa: S311 (of a benchmark)
    return [
        Payload(
            f"{name}-{number}",
            0,
            "bench",
            model,
            [numbers.randrange(vocabulary) for _ in range(num_prompt)],
            Sampling(max_tokens=num_output, temperature=0.0, ignore_eos=True),
        )
        for number, (num_prompt, num_output) in enumerate(lengths)
    ]
