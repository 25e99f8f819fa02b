"""An engine that is asked by several users at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.tiers.open_store import open_store
from gpu_node.executors.node_executor import make_executor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.messages.requests.payload import Payload, Sampling


@dataclass(slots=True)
class TimedAnswer:
    """What came of a request."""

    tokens: list[int] = field(default_factory=list)
    ttft_s: float = 0.0


class Player:
    """Owns an engine with one model, and its tiers; use it as a context."""

    def __init__(self, node: NodeSpec, spec: ModelSpec, options: EngineOptions) -> None:
        self._resources = ExitStack()
        executor: Any = make_executor(node, options)
        if hasattr(executor, "close"):
            self._resources.enter_context(closing(executor))
        self.store = open_store(options.tiers, node.name, executor)
        if self.store is not None:
            self._resources.enter_context(closing(self.store))
        self._engine = Engine(executor, options, store=self.store)
        self.model = self._engine.load_model(spec)
        self._num_asked = 0

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def counts(self) -> Counts:
        """The engine's."""
        return self._engine.counts

    def settle(self) -> None:
        """Let the store write what it has."""
        if self.store is not None:
            self.store.settle()

    def play(
        self, prompts: Sequence[list[int]], num_output_tokens: int, num_at_a_time: int, advance: Callable[[int], None]
    ) -> list[TimedAnswer]:
        """Greedy answers of equal length, in the order of ``prompts``; one that has ended lets the next begin.

        ``advance`` hears of prompt tokens whose answer has begun.
        """
        sampling = Sampling(max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True)
        answers: dict[str, TimedAnswer] = {}
        asked_s: dict[str, float] = {}
        waiting = deque(prompts)
        num_open = 0
        while waiting or num_open:
            while waiting and num_open < num_at_a_time:
                request_id = str(self._num_asked)
                self._num_asked += 1
                prompt = waiting.popleft()
                asked_s[request_id], answers[request_id] = time.perf_counter(), TimedAnswer()
                chunks = self._engine.add(Payload(request_id, 0, "bench", self.model.name, prompt, sampling))
                assert not chunks, "no request is refused"
                num_open += 1
                advance(len(prompt))
            for chunk in self._engine.step(time.monotonic()):
                assert not chunk.error, chunk.error
                answer = answers[chunk.request_id]
                if chunk.token_ids and not answer.tokens:
                    answer.ttft_s = time.perf_counter() - asked_s[chunk.request_id]
                answer.tokens += chunk.token_ids
                num_open -= chunk.is_last
        return list(answers.values())
