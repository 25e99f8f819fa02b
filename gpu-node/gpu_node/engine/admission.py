"""Whether one more request may run: only while the predicted peak of KV memory fits, so preemption is the exception."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Sequence as AnySequence

from gpu_node.engine.block_manager import BlockManager
from gpu_node.engine.forecast import Demand, RunningMean, expected_growth, peak_blocks
from gpu_node.engine.limits import num_slots_at_end
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.sequence import Request, Sequence


class Admission:
    """Learns how long outputs are and predicts from it. Before the first end, outputs are taken to use their limit."""

    def __init__(self, model: LoadedModel, blocks: BlockManager, max_num_seqs: int) -> None:
        self._model = model
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._prompt_tokens = RunningMean()
        self._limit_tokens = RunningMean()
        self._output_tokens = RunningMean()

    def on_arrival(self, request: Request) -> None:
        """Learn what a typical request asks for."""
        num_prompt_tokens = len(request.payload.prompt_token_ids)
        self._prompt_tokens.observe(num_prompt_tokens)
        num_slots = num_slots_at_end(num_prompt_tokens, request.sampling, self._model)
        self._limit_tokens.observe(num_slots - num_prompt_tokens)

    def on_finish(self, sequence: Sequence) -> None:
        """Learn how long an output has become."""
        self._output_tokens.observe(sequence.num_output_tokens)

    def admits(self, candidate: Request, running: Iterable[Request]) -> bool:
        """Whether ``candidate`` fits beside ``running`` up to the predicted peak."""
        demands = self._running_demands(running)
        demands += [self._demand(candidate, one, self._blocks.match(one.token_ids)) for one in candidate.sequences]
        return peak_blocks(demands, self._model.block_size) <= self._model.num_blocks

    def num_admittable(self, running: Collection[Request], waiting: Collection[Request]) -> int:
        """How many typical requests fit beside these; what the waiting ones could reuse is left out of account."""
        demands = self._running_demands(running)
        demands += [self._demand(request, one, ()) for request in waiting for one in request.sequences]
        num_left_blocks = self._model.num_blocks - peak_blocks(demands, self._model.block_size)
        num_places = self._max_num_seqs - len(running) - len(waiting)
        num_fitting = min(num_places, num_left_blocks // self._typical_blocks())
        return max(num_fitting, 0 if running or waiting else 1)

    def _typical_blocks(self) -> int:
        prompt_tokens = self._prompt_tokens.value(default=self._model.max_model_len)
        output_tokens = self._output_tokens.value(default=self._limit_tokens.value(default=0))
        num_tokens = min(round(prompt_tokens + output_tokens), self._model.max_model_len)
        return max(1, -(-num_tokens // self._model.block_size))

    def _running_demands(self, running: Iterable[Request]) -> list[Demand]:
        return [
            self._demand(request, sequence, self._blocks.table(sequence.sequence_id))
            for request in running
            for sequence in request.sequences
        ]

    def _demand(self, request: Request, sequence: Sequence, blocks: AnySequence[int]) -> Demand:
        num_slots = num_slots_at_end(sequence.num_prompt_tokens, request.sampling, self._model)
        num_tokens = len(sequence.token_ids)
        mean_tokens = self._output_tokens.value(default=num_slots)
        growth = expected_growth(sequence.num_output_tokens, mean_tokens, num_slots - num_tokens)
        return Demand(num_tokens, growth, blocks)
