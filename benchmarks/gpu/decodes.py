"""Requests that all decode: what their steps take."""

from __future__ import annotations

import random
from time import perf_counter

from gpu_node.engine.engine import Engine
from shared.messages.requests.payload import Payload, Sampling


class DecodeLoad:
    """So many requests of one length, with prompts that have no beginning in common."""

    def __init__(self, engine: Engine, model: str, num: int, prompt_tokens: int, output_tokens: int) -> None:
        self._engine = engine
        self._model = model
        self._num = num
        self._prompt_tokens = prompt_tokens
        self._output_tokens = output_tokens
        self._num_steps, self._began_s = 0, perf_counter()

    def fill(self) -> None:
        """Steps until each has drawn a token. `RuntimeError` if memory does not take them all."""
        numbers, left = random.Random(0), set(range(self._num))
        sampling = Sampling(max_tokens=self._output_tokens, temperature=0.0, ignore_eos=True)
        for number in left:
            prompt = [number + 1, *(numbers.randrange(1, 90) for _ in range(self._prompt_tokens - 1))]
            self._engine.add(Payload(str(number), 0, "check", self._model, prompt, sampling))
        while left:
            for chunk in self._engine.step(perf_counter()):
                if chunk.error or chunk.is_last:
                    raise RuntimeError(chunk.error or f"{len(left)} of {self._num} requests have no room")
                left.discard(int(chunk.request_id))
        self._num_steps, self._began_s = 0, perf_counter()

    def step(self) -> None:
        """One step of the engine."""
        self._engine.step(perf_counter())
        self._num_steps += 1

    def step_s(self) -> float:
        """Seconds of a step since the last call, or since all of them decode."""
        now_s = perf_counter()
        each_s = (now_s - self._began_s) / max(1, self._num_steps)
        self._num_steps, self._began_s = 0, now_s
        return each_s

    def steps_s(self, num: int) -> float:
        """Seconds of each of the next steps."""
        self.step_s()
        for _ in range(num):
            self.step()
        return self.step_s()
