"""The rule of admission (`gpu_node.engine.steps.admission`) for sequences without shared blocks, and over spans."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.forecast import RunningMean, expected_growth
from services.simulator.fast.sequence import FastSequence

SpanDemand = tuple[int, int]
"""Tokens that a sequence will still grow by, and tokens that it has; as in `KvDemand` of the live engine."""


def peak_slots(demands: Iterable[SpanDemand], block_size: int) -> int:
    """`gpu_node.engine.memory.forecast.peak_blocks` in KV slots, for sequences that share no block."""
    peak = num_tokens = 0
    waste = block_size - 1
    for num_alive, (growth, tokens) in enumerate(sorted(demands, reverse=True), start=1):
        num_tokens += tokens
        num_slots = num_tokens + num_alive * (growth + waste)
        if num_slots > peak:
            peak = num_slots
    return peak


class FastAdmission:
    """Learns how long outputs are and predicts from it."""

    def __init__(self, model: LoadedModel, max_num_seqs: int) -> None:
        self._model = model
        self._max_num_seqs = max_num_seqs
        self._num_usable_slots = model.num_blocks * model.block_size + model.block_size - 1
        self._prompt_tokens = RunningMean()
        self._limit_tokens = RunningMean()
        self._output_tokens = RunningMean()

    def on_arrival(self, num_prompt_tokens: int, max_len: int) -> None:
        """Learn what a typical request asks for."""
        self._prompt_tokens.observe(num_prompt_tokens)
        self._limit_tokens.observe(max_len - 1 - num_prompt_tokens)

    def on_finish(self, num_output_tokens: int) -> None:
        """Learn how long an output has become."""
        self._output_tokens.observe(num_output_tokens)

    def demand(self, num_tokens: int, num_prompt_tokens: int, max_len: int) -> SpanDemand:
        """What a sequence with so many known tokens will need."""
        num_limit_tokens = max_len - 1
        mean_tokens = self._output_tokens.value(default=num_limit_tokens)
        growth = expected_growth(num_tokens - num_prompt_tokens, mean_tokens, num_limit_tokens - num_tokens)
        return growth, num_tokens

    def demands(self, sequences: Iterable[FastSequence], clock: int) -> list[SpanDemand]:
        """`demand` of all that decode, at a clock. A loop of its own, since it is most of what an event costs."""
        found = []
        mean_tokens = self._output_tokens.value(default=math.inf)
        again = math.ceil(mean_tokens) if mean_tokens < math.inf else 0
        for sequence in sequences:
            num_tokens = sequence.offset + clock
            growth = sequence.max_len - 1 - num_tokens
            left = mean_tokens - num_tokens + sequence.num_prompt_tokens
            if left <= 0:
                growth = min(growth, again)
            elif left < growth:
                growth = math.ceil(left)
            found.append((growth, num_tokens))
        return found

    def num_blocked_steps(self, candidate: SpanDemand, running: Collection[SpanDemand]) -> int:
        """Steps that certainly pass before ``candidate`` is admitted if nobody comes or ends; 0: it is admitted now.

        A step lowers the predicted peak by one slot at most: where the candidate counts in it, it will be one token
        shorter at that time; what the others come to at a time does not depend on when it is predicted, unless they
        outlive the mean, and then it is more.
        """
        if not running:
            return 0  # alone, a request always has its try
        return max(0, peak_slots([*running, candidate], self._model.block_size) - self._num_usable_slots)

    def num_admittable(self, running: Collection[SpanDemand], waiting: Collection[SpanDemand]) -> int:
        """How many typical requests fit beside these."""
        num_places = self._max_num_seqs - len(running) - len(waiting)
        if num_places > 0:
            block_size = self._model.block_size
            num_left_blocks = self._model.num_blocks - peak_slots([*running, *waiting], block_size) // block_size
            num_places = min(num_places, num_left_blocks // self._typical_blocks())
        return max(num_places, 0 if running or waiting else 1)

    def _typical_blocks(self) -> int:
        prompt_tokens = self._prompt_tokens.value(default=self._model.max_model_len)
        output_tokens = self._output_tokens.value(default=self._limit_tokens.value(default=0))
        num_tokens = min(round(prompt_tokens + output_tokens), self._model.max_model_len)
        return max(1, -(-num_tokens // self._model.block_size))
