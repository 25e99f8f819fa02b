"""The rule of `gpu_node.engine.steps.admission.admission_rule` without shared blocks, and over spans of steps."""

from __future__ import annotations

import math
from collections.abc import Collection

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.forecast import peak_of_growths
from gpu_node.engine.steps.admission.admission_rule import AdmissionCase, AdmissionRule
from gpu_node.engine.steps.admission.typical_request import TypicalRequest
from services.simulator.fast.decode_batch import DecodeBatch
from services.simulator.fast.roster import FastRoster
from services.simulator.fast.sequence import FastSequence

SpanDemand = tuple[int, int]
"""Tokens that a sequence will still grow by, and tokens that it has."""


class FastAdmission:
    """Says what the sequences of a roster will need, as far as typical ones tell."""

    def __init__(self, model: LoadedModel, roster: FastRoster, max_num_seqs: int) -> None:
        self._model = model
        self._roster = roster
        self._rule = AdmissionRule(max_num_seqs, model.block_size)
        self.typical = TypicalRequest(model)

    def num_blocked_steps(self, candidate: FastSequence) -> int:
        """Steps that certainly pass before ``candidate`` is admitted if none comes or ends; 0: it is admitted now."""
        return self._rule.num_blocked_steps(self._case([candidate]))

    @property
    def num_admittable(self) -> int:
        """How many typical requests fit beside all that are here."""
        return self._rule.num_admittable(self._case(self._roster.waiting), self.typical.num_blocks)

    def _case(self, wanting: Collection[FastSequence]) -> AdmissionCase:
        def peak() -> int:
            demands = [*self._running_demands(), *map(self._demand, wanting)]
            return peak_of_growths(sorted(demands, reverse=True), self._model.block_size)

        return AdmissionCase(len(self._roster.running), len(wanting), self._model.num_blocks, peak)

    def _demand(self, sequence: FastSequence) -> SpanDemand:
        num_known = self._roster.num_known(sequence)
        return self.typical.growth(num_known, sequence.num_prompt_tokens, sequence.max_len), num_known

    def _running_demands(self) -> list[SpanDemand]:
        """Most decode; the others are looked for where there are some."""
        roster, batch = self._roster, self._roster.batch
        others = (
            [one for one in roster.running.values() if one not in batch] if len(roster.running) > len(batch) else []
        )
        return [*batch_demands(batch, self.typical), *map(self._demand, others)]


def batch_demands(batch: DecodeBatch, typical: TypicalRequest) -> list[SpanDemand]:
    """`TypicalRequest.growth` of all that decode, and their tokens.

    A loop of its own, since it is most of what an event costs.
    """
    found = []
    clock, mean_tokens = batch.clock, typical.mean_output_tokens(default=math.inf)
    again = math.ceil(mean_tokens) if mean_tokens < math.inf else 0
    for sequence in batch:
        num_tokens = sequence.offset + clock
        growth = sequence.max_len - 1 - num_tokens
        left = mean_tokens - num_tokens + sequence.num_prompt_tokens
        if left <= 0:
            growth = min(growth, again)
        elif left < growth:
            growth = math.ceil(left)
        found.append((growth, num_tokens))
    return found
