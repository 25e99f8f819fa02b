"""How many more requests vLLM can run: our forecast over its blocks, so that its own line stays empty.

vLLM admits what fits now, and computes again what must give way later; so it is given no more than what is predicted to
fit to the end (admission by predicted peak memory: NanoFlow, OSDI'25, §4.2.1).
"""

from __future__ import annotations

from collections.abc import Collection

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.forecast import peak_of_growths
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.admission_rule import AdmissionCase, AdmissionRule
from gpu_node.engine.steps.admission.typical_request import TypicalRequest


class BlockForecast:
    """Of one model."""

    def __init__(self, model: LoadedModel, max_num_seqs: int) -> None:
        self._model = model
        self._rule = AdmissionRule(max_num_seqs, model.block_size)
        self.typical = TypicalRequest(model)
        """Hears of those that come and end."""

    def num_admittable(self, present: Collection[EngineRequest]) -> int:
        """How many typical requests fit beside these. Prefixes that they share with one another count for each."""

        def peak() -> int:
            demands = [
                (self.typical.growth(len(one.token_ids), one.num_prompt_tokens, one.max_len), len(one.token_ids))
                for request in present
                for one in request.sequences
            ]
            demands.sort(key=lambda demand: -demand[0])
            return peak_of_growths(demands, self._model.block_size)

        num_places = sum(request.num_places for request in present)
        case = AdmissionCase(num_places, 0, self._model.num_blocks, peak)
        return self._rule.num_admittable(case, self.typical.num_blocks)
