"""Admission (`gpu_node.engine.steps.admission.admission_rule`) for requests whose sequences share blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as AnySequence

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.forecast import KvDemand, peak_slots
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.admission.admission_rule import AdmissionCase, AdmissionRule
from gpu_node.engine.steps.admission.typical_request import TypicalRequest


class KvAdmission:
    """Says what requests will need, as far as typical ones tell."""

    def __init__(self, model: LoadedModel, blocks: BlockManager, max_num_seqs: int) -> None:
        self._model = model
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._rule = AdmissionRule(max_num_seqs, model.block_size)
        self._typical = TypicalRequest(model)

    def on_arrival(self, request: EngineRequest) -> None:
        """Learn what a typical request asks for."""
        leader = request.sequences[0]
        self._typical.on_arrival(leader.num_prompt_tokens, leader.max_len)

    def on_finish(self, num_output_tokens: int) -> None:
        """Learn how long an output has become."""
        self._typical.on_finish(num_output_tokens)

    def num_blocked_steps(self, candidate: EngineRequest, running: Collection[EngineRequest]) -> int:
        """0 where ``candidate`` may run beside ``running``; else the steps before that need be asked again.

        As long as none of these ends or leaves, and none comes.
        """

        def peak() -> int:
            return peak_slots(self._demands_beside(candidate, running), self._model.block_size)

        return self._rule.num_blocked_steps(self._case(running, [candidate], peak))

    def num_admittable(self, running: Collection[EngineRequest], waiting: Collection[EngineRequest]) -> int:
        """How many typical requests fit beside these; what the waiting ones could reuse is left out of account."""

        def peak() -> int:
            return self._peak_of(running, waiting)

        return self._rule.num_admittable(self._case(running, waiting, peak), self._typical.num_blocks)

    def num_expected_blocks(
        self, running: Collection[EngineRequest], waiting: Collection[EngineRequest], nums_more: Iterable[int]
    ) -> list[int]:
        """KV blocks that these are predicted to take at once, with each number of typical requests beside them.

        As far as there are places for those.
        """
        num_places = max(0, self._max_num_seqs - sum(request.num_places for request in (*running, *waiting)))
        num_blocks = self._peak_of(running, waiting) // self._model.block_size
        return [num_blocks + min(number, num_places) * self._typical.num_blocks for number in nums_more]

    def may_go_over(self, candidate: EngineRequest, over: Collection[EngineRequest]) -> bool:
        """Whether the receiver is predicted to have room for ``candidate`` beside those ``over`` there, or to be."""
        if self._blocks.remote.pages.num_owed:
            return False
        return self._num_left_over((*over, candidate)) >= 0

    def num_that_may_go_over(self, over: Collection[EngineRequest]) -> int:
        """How many typical requests the receiver is predicted to have room for beside those."""
        return max(0, self._num_left_over(over) // self._typical.num_blocks)

    def _num_left_over(self, over: Iterable[EngineRequest]) -> int:
        """The receiver's blocks beside the peak of those; below 0 where they do not fit."""
        leaders = [request.sequences[0] for request in over]
        demands = [self._demand(leader, len(leader.token_ids), ()) for leader in leaders]
        num_usable_blocks = self._blocks.remote.num_free + self._blocks.remote.num_used
        return num_usable_blocks - peak_slots(demands, self._model.block_size) // self._model.block_size

    def _demands_beside(self, candidate: EngineRequest, running: Iterable[EngineRequest]) -> list[KvDemand]:
        """The candidate's come last."""
        cached = self._blocks.match(candidate.sequences[0].token_ids, candidate.payload.owner)
        leaves = candidate.goes_over
        own = [_prompt_demand(candidate, cached)] if leaves else self._unforked_demands(candidate, cached)
        return self._running_demands(running) + own

    def _case(
        self, running: Iterable[EngineRequest], wanting: Iterable[EngineRequest], peak: Callable[[], int]
    ) -> AdmissionCase:
        num_taken, num_wanted = (sum(request.num_places for request in here) for here in (running, wanting))
        return AdmissionCase(num_taken, num_wanted, self._blocks.num_usable_blocks, peak)

    def _peak_of(self, running: Iterable[EngineRequest], waiting: Iterable[EngineRequest]) -> int:
        demands = [demand for request in waiting for demand in self._unforked_demands(request, ())]
        return self._peak_slots(running, demands)

    def _peak_slots(self, running: Iterable[EngineRequest], others: list[KvDemand]) -> int:
        return peak_slots([*self._running_demands(running), *others], self._model.block_size)

    def _running_demands(self, running: Iterable[EngineRequest]) -> list[KvDemand]:
        demands: list[KvDemand] = []
        for request in running:
            if self._blocks.remote.has(request.sequences[0].sequence_id):
                continue  # its blocks are the receiver's
            if request.goes_over:
                demands.append(_prompt_demand(request, self._blocks.table(request.sequences[0].sequence_id)))
            elif request.is_forked:
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
        growth = self._typical.growth(len(sequence.token_ids), sequence.num_prompt_tokens, sequence.max_len)
        return KvDemand(num_tokens, growth, blocks)


def _prompt_demand(request: EngineRequest, blocks: AnySequence[int]) -> KvDemand:
    """Of a request that leaves for the receiver when its prompt is computed: it grows there."""
    return KvDemand(len(request.sequences[0].token_ids), 0, blocks)
