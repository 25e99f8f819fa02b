"""An executor without tensors, for the simulator: a cost model says how long a step takes, tokens are made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpu_node.engine.border.executor import ComputedStep
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Draw, StepPlan, StepResult
from gpu_node.engine.border.sizing import MAX_CONTEXT_LENGTH, cut
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.predicted.made_up import MadeUpTokens
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.kv_paging import block_bytes
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from shared.pipelines.step_pipeline import StepPipeline

AnswerTokens = Callable[[Sampling], int]
"""After how many tokens a model ends its answer, by itself. What a request asks for identifies it by its seed."""


DEFAULT_KV_BYTES_PER_S = 10e9
"""Between device and host memory: what a copy by one core of a server gives."""


class PredictedCost(Protocol):
    """What says how long a step takes: a `StepCost`, or a device that is more than four numbers."""

    def predict_s(self, num_tokens: float, num_context_tokens: float, num_attended_tokens: float = 0.0, /) -> float:
        """Of a step of so many rows, which read and attend to so many tokens together."""
        ...


@dataclass(frozen=True, slots=True)
class PipedCost:
    """Of a device whose full steps go through a pipeline."""

    plain: StepCost
    pipeline: StepPipeline

    def predict_s(self, num_tokens: float, num_context_tokens: float, num_attended_tokens: float = 0.0, /) -> float:
        """As the pipeline has it."""
        return self.pipeline.predict_s(self.plain, num_tokens, num_context_tokens, num_attended_tokens)


class PredictedExecutor:
    """Runs any model by prediction. The same plans give the same tokens and durations."""

    device = "predicted"

    def __init__(
        self,
        cost: PredictedCost,
        options: EngineOptions,
        token_kv_bytes: int,
        vocab_size: int,
        kv_bytes_per_s: float = DEFAULT_KV_BYTES_PER_S,
        answer_tokens: AnswerTokens | None = None,
        context_length: int = MAX_CONTEXT_LENGTH,
        tokens: MadeUpTokens | None = None,
    ) -> None:
        """``answer_tokens`` says after how many tokens the model ends an answer; without it, it never does.

        ``context_length`` bounds the length of models that do not say it themselves. ``tokens`` are drawn instead of
        any of the vocabulary.
        """
        self._cost = cost
        self._answer_tokens = answer_tokens
        self._kv_bytes_per_s = kv_bytes_per_s
        self._moves_s = 0.0  # since the last step
        self._models: dict[str, tuple[ModelSpec, LoadedModel]] = {}
        self._left: HostTier[None] = HostTier(options.host_models, lambda _: None)
        self._options = options
        self._token_kv_bytes = token_kv_bytes
        self._block_bytes = block_bytes(options.block_size, token_kv_bytes)
        self._vocab_size = vocab_size
        self._context_length = context_length
        num_words = vocab_size if answer_tokens is None else vocab_size - 1
        self._tokens = tokens or MadeUpTokens(range(num_words), vocab_size, self._ends)

    @property
    def tiers(self) -> dict[str, str]:
        """Where weights would be."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """A model of the given size. Where it ends answers, its last token is the one that does."""
        eos_token_ids = frozenset[int]() if self._answer_tokens is None else frozenset({self._vocab_size - 1})
        model = cut(
            spec.name,
            self._options,
            token_bytes=self._token_kv_bytes,
            max_model_len=spec.max_model_len,
            context_length=self._context_length,
            vocab_size=self._vocab_size,
            eos_token_ids=eos_token_ids,
            adapters=spec.adapters,
        )
        self._left.take(spec)
        if instead_of is not None and instead_of != spec.name:
            self.unload_model(instead_of)
        self._models[spec.name] = spec, model
        return model

    def unload_model(self, name: str) -> None:
        """It is known to be in host memory, as long as it would be."""
        spec, _ = self._models.pop(name)
        self._left.put(spec, None)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """No content; what is the host's already costs nothing."""
        return memoryview(b""), 0.0 if swapped_out else self._move(model, len(blocks))

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """No content."""
        assert not content
        return self._move(model, len(blocks))

    def _move(self, model: str, num_blocks: int) -> float:
        """Seconds for so many blocks; the next step begins behind them."""
        _, loaded = self._models[model]
        duration_s = num_blocks * loaded.block_bytes / self._kv_bytes_per_s
        self._moves_s += duration_s
        return duration_s

    def submit(self, plan: StepPlan) -> ComputedStep:
        """Predict the duration; each token follows from seed, choice and position alone, so none is fed back."""
        draws = [draw for part in plan.sequences for draw in part.draws]
        rows_s = self._rows_s(plan)
        moves_s, self._moves_s = self._moves_s + self._swaps_s(plan, rows_s), 0.0
        return ComputedStep(
            StepResult(
                token_ids={draw.sequence_id: self._tokens.token(draw) for draw in draws},
                duration_s=rows_s,
                moves_s=moves_s,
                logprobs={draw.sequence_id: self._logprob(draw.num_top) for draw in draws if draw.num_top is not None},
            )
        )

    def _rows_s(self, plan: StepPlan) -> float:
        """A step that only moves blocks computes nothing."""
        if not plan.sequences and (plan.moves_out or plan.swaps_in):
            return 0.0
        return self._cost.predict_s(plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens)

    def _swaps_s(self, plan: StepPlan, rows_s: float) -> float:
        """What a plan's swaps add to its rows: all that they take in one queue, or what does not fit beside the rows.

        Bytes over bandwidth for each direction (AdaptiveLLM, equations 2-4). Beside the rows there is one copy queue
        for both directions (`gpu_node.executors.memory.block_moves`), and the next step reads what came back.
        """
        if not plan.moves_out and not plan.swaps_in:
            return 0.0
        num_bytes = (len(plan.moves_out) + len(plan.swaps_in)) * self._block_bytes
        copies_s = num_bytes / self._kv_bytes_per_s
        return max(0.0, copies_s - rows_s) if self._options.overlap_swaps else copies_s

    def _ends(self, draw: Draw) -> Sequence[int]:
        if self._answer_tokens is None or draw.position + 1 < self._answer_tokens(draw.sampling):
            return ()
        return (self._vocab_size - 1,)

    def _logprob(self, num_top: int) -> TokenLogprob:
        """Of a model that finds all tokens equally likely: equals come in the order of their ids."""
        logprob = -math.log(self._vocab_size)
        return TokenLogprob(logprob, [(token, logprob) for token in range(min(num_top, self._vocab_size))])
