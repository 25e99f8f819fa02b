"""An executor without tensors, for the simulator: a cost model says how long a step takes, tokens are made up."""

from __future__ import annotations

import math

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import Draw, StepPlan, StepResult
from gpu_node.executors.counter import uniform
from gpu_node.executors.executor import ComputedStep
from gpu_node.executors.sizing import cut
from shared.config import EngineOptions, ModelSpec
from shared.messages import TokenLogprob
from shared.step_cost import StepCost


def num_context_tokens(plan: StepPlan) -> int:
    """Tokens whose keys and values a step reads, all sequences together."""
    return sum(part.start + len(part.token_ids) for part in plan.sequences)


def num_attended_tokens(plan: StepPlan) -> int:
    """Pairs of a row and a token that it attends to: the row at position p attends to p + 1."""
    num_tokens = 0
    for part in plan.sequences:
        num_rows = len(part.token_ids)
        num_tokens += num_rows * part.start + num_rows * (num_rows + 1) // 2
    return num_tokens


class PredictedExecutor:
    """Runs any model by prediction. The same plans give the same tokens and durations."""

    device = "predicted"

    def __init__(self, cost: StepCost, options: EngineOptions, token_kv_bytes: int, vocab_size: int) -> None:
        self._cost = cost
        self._options = options
        self._token_kv_bytes = token_kv_bytes
        self._vocab_size = vocab_size

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """A model of the given size with no end-of-sequence token: outputs are as long as requests ask for."""
        return cut(
            spec.name,
            self._options,
            token_bytes=self._token_kv_bytes,
            max_model_len=spec.max_model_len,
            vocab_size=self._vocab_size,
        )

    def unload_model(self, name: str) -> None:
        """Nothing is kept of a model."""

    def submit(self, plan: StepPlan) -> ComputedStep:
        """Predict the duration; each token follows from seed, choice and position alone, so none is fed back."""
        draws = [draw for part in plan.sequences for draw in part.draws]
        return ComputedStep(
            StepResult(
                token_ids={draw.sequence_id: self._token(draw) for draw in draws},
                duration_s=self._cost.predict_s(plan.num_tokens, num_context_tokens(plan), num_attended_tokens(plan)),
                logprobs={draw.sequence_id: self._logprob(draw.num_top) for draw in draws if draw.num_top is not None},
            )
        )

    def _token(self, draw: Draw) -> int:
        return int(uniform(draw.sampling.seed, draw.position, draw.choice) * self._vocab_size)

    def _logprob(self, num_top: int) -> TokenLogprob:
        """Of a model that finds all tokens equally likely: equals come in the order of their ids."""
        logprob = -math.log(self._vocab_size)
        return TokenLogprob(logprob, [(token, logprob) for token in range(min(num_top, self._vocab_size))])
