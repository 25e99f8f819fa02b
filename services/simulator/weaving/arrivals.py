"""Requests of one model: when they come, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from services.simulator.fast.sequence import FastSequence
from shared.messages.requests.payload import Payload, Sampling

RequestLengths = Sequence[tuple[int, int]]
"""Tokens of prompts and of their answers."""


class PoissonArrivals:
    """Independent arrivals at a rate (Poisson), of lengths drawn from ``lengths``; the same seed gives the same."""

    def __init__(self, rate_per_s: float, lengths: RequestLengths, seed: int) -> None:
        self._rate_per_s, self._lengths = rate_per_s, lengths
        self._times = Random(seed)  # noqa: S311 - times are no secret
        self._draws = Random(seed + 1)  # noqa: S311 - nor are lengths
        self._number = 0
        self.next_s = self._times.expovariate(rate_per_s)

    def take(self, now: float) -> list[FastSequence]:
        """Who has come by now, in order. What one token answers is over when its prompt is, so it is not here."""
        came = []
        while self.next_s <= now:
            sequence = self.draw()
            if sequence.end_len > sequence.offset:
                came.append(sequence)
            self.next_s += self._times.expovariate(self._rate_per_s)
        return came

    def draw(self) -> FastSequence:
        """The next request, whenever it comes; its prompt and its first token are there."""
        num_prompt_tokens, num_output_tokens = self._draws.choice(self._lengths)
        self._number += 1
        num_tokens = num_prompt_tokens + num_output_tokens
        return FastSequence(
            payload=Payload(str(self._number), 0, "", "", [], Sampling(max_tokens=num_output_tokens)),
            order=self._number,
            num_prompt_tokens=num_prompt_tokens,
            max_len=num_tokens,
            answer_len=num_tokens,
            num_told_tokens=0,
            offset=num_prompt_tokens + 1,
            parked=None,
        )
