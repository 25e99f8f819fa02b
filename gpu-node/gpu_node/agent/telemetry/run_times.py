"""When the runs of a node begin and bring tokens, under the names that dashboards of engines know (vLLM's).

They are a node's own times: a run begins when the engine is given it. What clients see is measured at the gateway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import Counter, Histogram

from gpu_node.agent.decisions.actions import Publish
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk

_LABELS = ["model_name"]
_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
_TOKEN_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10)

TTFT_S = Histogram(
    "vllm:time_to_first_token_seconds",
    "From the engine's getting a request to the first token of its answer",
    _LABELS,
    buckets=_LATENCY_BUCKETS_S,
)
TOKEN_S = Histogram(
    "vllm:inter_token_latency_seconds", "From one token of a choice to the next", _LABELS, buckets=_TOKEN_BUCKETS_S
)
E2E_S = Histogram(
    "vllm:e2e_request_latency_seconds",
    "From the engine's getting a request to its end, of runs that ended here",
    _LABELS,
    buckets=_LATENCY_BUCKETS_S,
)
PROMPT_TOKENS = Counter(
    "vllm:prompt_tokens_total", "Tokens in prompts of answers that began here, and in texts", _LABELS
)
GENERATION_TOKENS = Counter("vllm:generation_tokens_total", "Output tokens", _LABELS)
POOLED_TEXTS = Counter("treadle_node_pooled_texts_total", "Texts that were embedded or scored here", ["model"])


class _OfModel:
    """The series of one model, looked up once: a step observes each of its tokens."""

    def __init__(self, model: str) -> None:
        self.ttft_s = TTFT_S.labels(model)
        self.token_s = TOKEN_S.labels(model)
        self.e2e_s = E2E_S.labels(model)
        self.prompt_tokens = PROMPT_TOKENS.labels(model)
        self.generation_tokens = GENERATION_TOKENS.labels(model)
        self.pooled_texts = POOLED_TEXTS.labels(model)


@dataclass(slots=True)
class _Run:
    model: _OfModel
    prompt_tokens: int
    began_s: float
    last_s: dict[int, float] = field(default_factory=dict)
    """By choice, when its last token came."""


class RunTimes:
    """The runs that the engine has. Times are given in, in seconds on one clock."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._models: dict[str, _OfModel] = {}

    def begin(self, payload: Payload, now: float) -> None:
        """The engine is given a run; it replaces an older one of the same request."""
        model = self._models.get(payload.model)
        if model is None:
            model = self._models[payload.model] = _OfModel(payload.model)
        self._runs[payload.request_id] = _Run(model, payload.num_prompt_tokens, now)

    def publish(self, publish: Publish, now: float) -> None:
        """Tokens have come, and ends."""
        for tokens in publish.tokens.values():
            for chunk in tokens.chunks:
                run = self._runs.get(chunk.request_id)
                if run is None:
                    continue
                if chunk.embedding:
                    _observe_pooled(run, chunk, now)
                elif chunk.token_ids:
                    _observe(run, chunk, now)
        for finished in publish.finished:
            run = self._runs.pop(finished.request_id, None)
            if run is not None and run.last_s:
                run.model.e2e_s.observe(now - run.began_s)
        self.drop(evicted.request_id for evicted in publish.evicted)

    def drop(self, request_ids: Iterable[str]) -> None:
        """These run no more."""
        for request_id in request_ids:
            self._runs.pop(request_id, None)


def _observe(run: _Run, chunk: Chunk, now: float) -> None:
    last_s = run.last_s.get(chunk.choice)
    if last_s is not None:
        run.model.token_s.observe((now - last_s) / len(chunk.token_ids))
    elif not run.last_s and chunk.index == 0:  # a resumed answer had its first token before
        run.model.ttft_s.observe(now - run.began_s)
        run.model.prompt_tokens.inc(run.prompt_tokens)
    run.last_s[chunk.choice] = now
    run.model.generation_tokens.inc(len(chunk.token_ids))


def _observe_pooled(run: _Run, chunk: Chunk, now: float) -> None:
    """A text has no tokens behind it: what came is all of its answer."""
    run.model.prompt_tokens.inc(run.prompt_tokens)
    run.model.pooled_texts.inc()
    run.last_s[chunk.choice] = now
