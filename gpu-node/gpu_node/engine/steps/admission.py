"""Whether one more request may run: only while the predicted peak of KV memory fits, so preemption is the exception."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Sequence as AnySequence

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.forecast import KvDemand, RunningMean, expected_growth, peak_blocks
from gpu_node.engine.requests.sequence import EngineRequest, Sequence


class KvAdmission:
    """Learns how long outputs are and predicts from it. Before the first end, outputs are taken to use their limit."""

    def __init__(self, model: LoadedModel, blocks: BlockManager, max_num_seqs: int) -> None:
        self._model = model
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._prompt_tokens = RunningMean()
        self._limit_tokens = RunningMean()
        self._output_tokens = RunningMean()

    def on_arrival(self, request: EngineRequest) -> None:
        """Learn what a typical request asks for."""
        leader = request.sequences[0]
        self._prompt_tokens.observe(leader.num_prompt_tokens)
        self._limit_tokens.observe(leader.max_len - 1 - leader.num_prompt_tokens)

    def on_finish(self, num_output_tokens: int) -> None:
        """Learn how long an output has become."""
        self._output_tokens.observe(num_output_tokens)

    def admits(self, candidate: EngineRequest, running: Iterable[EngineRequest]) -> bool:
        """Whether ``candidate`` fits beside ``running`` up to the predicted peak."""
        demands = self._running_demands(running)
        demands += self._unforked_demands(candidate, self._blocks.match(candidate.sequences[0].token_ids))
        return peak_blocks(demands, self._model.block_size) <= self._blocks.num_usable_blocks

    def num_admittable(self, running: Collection[EngineRequest], waiting: Collection[EngineRequest]) -> int:
        """How many typical requests fit beside these; what the waiting ones could reuse is left out of account."""
        num_places = self._max_num_seqs - sum(request.num_places for here in (running, waiting) for request in here)
        if num_places > 0:
            demands = self._running_demands(running)
            demands += [demand for request in waiting for demand in self._unforked_demands(request, ())]
            num_left_blocks = self._blocks.num_usable_blocks - peak_blocks(demands, self._model.block_size)
            num_places = min(num_places, num_left_blocks // self._typical_blocks())
        return max(num_places, 0 if running or waiting else 1)

    def _typical_blocks(self) -> int:
        prompt_tokens = self._prompt_tokens.value(default=self._model.max_model_len)
        output_tokens = self._output_tokens.value(default=self._limit_tokens.value(default=0))
        num_tokens = min(round(prompt_tokens + output_tokens), self._model.max_model_len)
        return max(1, -(-num_tokens // self._model.block_size))

    def _running_demands(self, running: Iterable[EngineRequest]) -> list[KvDemand]:
        demands: list[KvDemand] = []
        for request in running:
            if request.is_forked:
                demands += [
                    self._demand(sequence, len(sequence.token_ids), self._blocks.table(sequence.sequence_id))
                    for sequence in request.sequences
                ]
            else:
                demands += self._unforked_demands(request, self._blocks.table(request.sequences[0].sequence_id))
        return demands

    def _unforked_demands(self, request: EngineRequest, leader_blocks: AnySequence[int]) -> list[KvDemand]:
        """The full blocks of the prompt count once, with the leader; what comes behind them, for each sequence."""
        leader, *others = request.sequences
        num_shared_tokens = leader.num_prompt_tokens // self._model.block_size * self._model.block_size
        demands = [self._demand(leader, len(leader.token_ids), leader_blocks)]
        demands += [self._demand(one, len(one.token_ids) - num_shared_tokens, ()) for one in others]
        num_new_beams = request.num_places - len(request.sequences)
        demands += [self._demand(leader, len(leader.token_ids) - num_shared_tokens, ())] * num_new_beams
        return demands

    def _demand(self, sequence: Sequence, num_tokens: int, blocks: AnySequence[int]) -> KvDemand:
        num_limit_tokens = sequence.max_len - 1
        mean_tokens = self._output_tokens.value(default=num_limit_tokens)
        max_growth_tokens = num_limit_tokens - len(sequence.token_ids)
        return KvDemand(num_tokens, expected_growth(sequence.num_output_tokens, mean_tokens, max_growth_tokens), blocks)
