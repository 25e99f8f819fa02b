"""The three workloads of QLM's evaluation (SoCC'24, §8): lengths of ShareGPT, Poisson arrivals.

The paper names models and classes; in which proportion they come it leaves open, so they come equally often.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from services.simulator.workloads.arrivals import WeightedNames, poisson
from services.simulator.workloads.lengths import draw_mega, draw_sharegpt
from services.simulator.workloads.request import WorkloadRequest

ONE_MODEL = WeightedNames({"mistral-7b": 1})
MANY_MODELS = WeightedNames({"mistral-7b": 1, "vicuna-13b": 1, "llama-70b": 1})
INTERACTIVE_AND_BATCH = WeightedNames({"interactive": 1, "batch-1": 1, "batch-2": 1})
BATCH_ONLY = WeightedNames({"batch-1": 1, "batch-2": 1})
MEGA_SHARE = 0.05
"""Of W_C's prompts, those with thousands of tokens."""


@dataclass(frozen=True, slots=True)
class PaperWorkload:
    """What is drawn."""

    models: WeightedNames
    slos: WeightedNames
    mega_share: float = 0.0

    def draw(
        self, rate_per_s: float, num_requests: int, random: Random, *, slos: WeightedNames | None = None
    ) -> list[WorkloadRequest]:
        """So many requests; ``slos`` replaces the workload's own mix of classes."""
        requests = []
        for arrival_s in poisson(rate_per_s, num_requests, random):
            is_mega = random.random() < self.mega_share
            prompt_tokens, output_tokens = draw_mega(random) if is_mega else draw_sharegpt(random)
            model, slo = self.models.draw(random), (slos or self.slos).draw(random)
            requests.append(WorkloadRequest(arrival_s, model, slo, prompt_tokens, output_tokens))
        return requests


WORKLOADS = {
    "wa": PaperWorkload(ONE_MODEL, INTERACTIVE_AND_BATCH),
    "wb": PaperWorkload(MANY_MODELS, BATCH_ONLY),
    "wc": PaperWorkload(ONE_MODEL, INTERACTIVE_AND_BATCH, MEGA_SHARE),
}
