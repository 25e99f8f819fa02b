"""What a full batch really is, against what `shared.estimator.batching` makes of it: Θ, learnt online.

A node with requests to spare runs as many as its engine admits, which is not quite what fits on average: the engine
predicts how its batch will grow, and lengths in it rise and fall together. Nor do tokens come quite as fast as steps of
a mean batch would have it, above all where prompts come in clumps. Both are measured while another waits: requests
that run, and Θ itself, the output tokens a second of the node (QLM, SoCC'24 §5: learnt online per kind of device and
model). Tokens are those of answers that ended, and by how much those that run have come further: so no answer has to
end to be counted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from services.queue_manager.learnt.weights_at import WeightsAt
from shared.estimator.batching import batching, held_tokens
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost

MEMORY_S = 120.0  # of a busy node; what is older counts less than 1/e
PRIOR_S = 10.0  # for so long it is taken to have been as modelled
LEAST_RATIO, MOST_RATIO = 0.5, 2.0  # bounds of what is corrected: beyond them the cost model itself is wrong
MAX_FITS = 1024  # (model, device) that are remembered; the one that was heard of longest ago is forgotten first


class Fit(msgspec.Struct, array_like=True):
    """Fading integrals over busy seconds.

    Places are compared by the memory that they hold: where batches of many short and of few long requests take turns,
    their numbers have no common measure, but memory is full with either.
    """

    seconds: float = 0.0
    held_tokens: float = 0.0
    """In KV memory, by the requests that ran, each at its average age."""
    modelled_held_tokens: float = 0.0
    """By as many as should have run."""
    tokens: float = 0.0
    """That were drawn."""
    modelled_tokens: float = 0.0
    """As many as should have been, by as many as ran."""

    @property
    def places_ratio(self) -> float:
        """Observed to modelled."""
        return _bounded(self.held_tokens / self.modelled_held_tokens) if self.seconds else 1.0

    @property
    def seconds_ratio(self) -> float:
        """Observed to modelled, of the time that a token takes."""
        return _bounded(self.modelled_tokens / max(1.0, self.tokens)) if self.seconds else 1.0

    def add(self, kept: float, seconds: float, held: float, modelled: float, tokens: float, expected: float) -> None:
        """So many seconds more, with these means of memory and these tokens; of the past so much is kept."""
        self.seconds = kept * self.seconds + seconds
        self.held_tokens = kept * self.held_tokens + seconds * held
        self.modelled_held_tokens = kept * self.modelled_held_tokens + seconds * modelled
        self.tokens = kept * self.tokens + tokens
        self.modelled_tokens = kept * self.modelled_tokens + expected


class Calibration:
    """Corrects what is known of nodes. Owns `State.fits`."""

    def __init__(self, fits: dict[WeightsAt, Fit], *, is_on: bool = True) -> None:
        self._fits = fits
        self._is_on = is_on
        self._expected: dict[tuple[str, str], tuple[NodeState, NodeState]] = {}  # node as known: computed when asked

    def observe(
        self, node: NodeState, shape: RequestShape, num_running: int, num_tokens: float, seconds: float
    ) -> None:
        """For so many seconds, while others waited, so many like these ran, and drew so many tokens together.

        How fast they are is compared at the batch that there was.
        """
        key = WeightsAt(shape.model, node.device)
        fit = self._fits.pop(key, None) or Fit()
        batch = batching(node, shape).batch
        held = held_tokens(shape)
        fewer = msgspec.structs.replace(
            node, rates=[replace(rate, kv_tokens=_kv_tokens(rate, fit)) for rate in node.rates]
        )
        work = batching(fewer, shape)
        if not fit.seconds:
            prior = PRIOR_S * work.tokens_per_s
            fit.add(0.0, PRIOR_S, batch * held, batch * held, prior, prior)
        kept = math.exp(-seconds / MEMORY_S)
        fit.add(kept, seconds, num_running * held, batch * held, num_tokens, seconds * work.tokens_per_s)
        self._expected.clear()
        self._fits[key] = fit  # at the end: the first is the one to forget
        if len(self._fits) > MAX_FITS:
            del self._fits[next(iter(self._fits))]

    def expected(self, node: NodeState) -> NodeState:
        """The node as it can be expected to do."""
        return msgspec.structs.replace(node, rates=[self._corrected(node, rate) for rate in node.rates])

    def expected_of(self, node: NodeState, model: str) -> NodeState:
        """The same as far as it tells of one model: by its own rate, or else by all
        (`shared.estimator.batching.rate_of`).

        It is asked with every request, and kept until a fit changes or the node is known better.
        """
        key = (node.node, model)
        known, expected = self._expected.get(key, (None, node))
        if known is not node:
            if len(self._expected) >= MAX_FITS:
                self._expected.clear()
            expected = self._expected_of(node, model)
            self._expected[key] = node, expected
        return expected

    def _expected_of(self, node: NodeState, model: str) -> NodeState:
        rates = [rate for rate in node.rates if rate.model == model] or node.rates
        return msgspec.structs.replace(node, rates=[self._corrected(node, rate) for rate in rates])

    def _corrected(self, node: NodeState, rate: ModelRate) -> ModelRate:
        fit = self._fits.get(WeightsAt(rate.model, node.device)) if self._is_on else None
        return rate if fit is None else corrected(rate, fit)


def corrected(rate: ModelRate, fit: Fit) -> ModelRate:
    """The rate with which the model comes to what was observed: its memory holds fewer, and its steps take longer."""
    seconds = fit.seconds_ratio
    cost = rate.cost
    return replace(
        rate,
        kv_tokens=_kv_tokens(rate, fit),
        cost=StepCost(
            step_s=seconds * cost.step_s,
            token_s=seconds * cost.token_s,
            context_token_s=seconds * cost.context_token_s,
            attended_token_s=seconds * cost.attended_token_s,
        ),
    )


def _kv_tokens(rate: ModelRate, fit: Fit) -> int:
    return round(fit.places_ratio * rate.kv_tokens)


def _bounded(ratio: float) -> float:
    return min(max(ratio, LEAST_RATIO), MOST_RATIO)
