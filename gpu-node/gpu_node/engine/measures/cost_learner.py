"""Learns from measured steps what steps cost: recursive least squares around a prior, with no negative number in it.

The prediction is linear in `StepCost`'s numbers, so they are the θ >= 0 that minimises

    Σ_i λ^(n-i) ((y_i - θ·x_i) / ŷ_i)² / NOISE²  +  Σ_j ((θ_j - prior_j) / prior_j)² / PRIOR_SPREAD²

with x = (1, rows, context tokens, attended tokens, and where there is a receiver, tokens there), y the measured
duration, with what the device waited for its host before, and ŷ what was predicted: relative errors, since a step may
be a hundred times as long as another. λ forgets, slowly. The prior is not forgotten: a load that only decodes cannot
tell a row from its context, and there the prior decides. Sums are kept, not steps: a step costs microseconds.

A step that is predicted to cost nothing (all that it has is free by now) counts as one of `LEAST_SHARE` of what the
units say, so that no step weighs without bound.

A step that took far longer than predicted (another process had the CPU, pages were touched for the first time) counts
with `MAX_RATIO` times the prediction. Where steps *have* become slower, so much moves the prediction each time.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.measures.least_squares import NormalEquations, Vector
from shared.messages.nodes.step_cost import StepCost

NOISE = 0.1  # relative spread of a step around its prediction
PRIOR_SPREAD = 1.0  # relative spread of true numbers around the prior's
GUESS_SPREAD = 3.0  # likewise, around a prior that is only guessed from the first step
GUESSED_SHARES = (0.5, 0.4, 0.05, 0.05)  # of the first step: weights, rows, and the two of attention
MEMORY_STEPS = 2_000  # a step this long ago weighs 1/e of the present one
LEAST_SHARE = 0.01  # of what its units sum to, a step is predicted to take at least
MAX_RATIO = 2.0  # a step counts as no longer than this times what was predicted
NUM_LOCAL = 4  # of these numbers, those that a device has without a receiver
WARM_UP_STEPS = 2  # first steps behind a load are not looked at
SOLVE_STEPS = 16  # the numbers are worked out anew after so many; at first, after each
LEAST_UNITS = StepCost(1e-6, 1e-9, 1e-12, 1e-12, 1e-12)  # in which a number is counted that the prior says nothing of


class KnownCosts(Protocol):
    """What steps of models were found to cost here before."""

    def get(self, model: str, /) -> StepCost | None:
        """Of one that has come, by name; None where that is unknown."""
        ...


NOTHING_KNOWN: KnownCosts = MappingProxyType[str, StepCost]({})


class CostLearner:
    """Of one model on one device."""

    def __init__(self, prior: StepCost | None = None, *, has_remote: bool = False) -> None:
        """``prior`` as it was profiled or computed; without one, the first steps have all to say.

        ``has_remote``: sequences may lie at a receiver, and context there has a price of its own. Until one has lain
        there, that is taken to be as dear as at home.
        """
        self._num_numbers = NUM_LOCAL + has_remote
        self._num_steps = 0
        self._units: tuple[float, ...] = ()
        self._shares: Vector = []
        """The numbers in units of the prior's, so that all are near 1; empty while nothing is known."""
        if prior is not None:
            self._begin(prior, PRIOR_SPREAD)

    @property
    def cost(self) -> StepCost | None:
        """As far as it is known by now; None before any step and without a prior."""
        if not self._shares:
            return None
        return StepCost(*(share * unit for share, unit in zip(self._shares, self._units, strict=True)))

    def observe(self, plan: StepPlan, duration_s: float) -> None:
        """A step has been measured."""
        sizes = plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens
        self.learn(*sizes, duration_s, plan.num_remote_tokens if self._num_numbers > NUM_LOCAL else 0)

    def learn(
        self,
        num_tokens: int,
        num_context_tokens: int,
        num_attended_tokens: int,
        duration_s: float,
        num_remote_tokens: int = 0,
    ) -> None:
        """A step of that size has been measured; the counts are those of `StepCost.predict_s`."""
        self._num_steps += 1
        if self._num_steps <= WARM_UP_STEPS or duration_s <= 0 or num_tokens == 0:
            return
        numbers = (1, num_tokens, num_context_tokens, num_attended_tokens, num_remote_tokens)[: self._num_numbers]
        if not self._shares:
            self._begin(_guess(numbers, duration_s), GUESS_SPREAD)
        row = [unit * number for unit, number in zip(self._units, numbers, strict=True)]
        predicted_s = sum(share * part for share, part in zip(self._shares, row, strict=True))
        predicted_s = max(predicted_s, LEAST_SHARE * sum(row))
        weight, keep = (NOISE * predicted_s) ** -2, 1.0 - 1.0 / MEMORY_STEPS
        self._sums.add(row, min(duration_s, MAX_RATIO * predicted_s), weight, keep)
        if self._num_steps <= SOLVE_STEPS or self._num_steps % SOLVE_STEPS == 0:
            self._shares = self._sums.solve(self._prior, self._prior_weight)

    def _begin(self, prior: StepCost, spread: float) -> None:
        prior = replace(prior, remote_token_s=prior.remote_token_s or prior.decode_context_token_s)
        numbers = _numbers(prior)[: self._num_numbers]
        self._units = tuple(max(number, least) for number, least in zip(numbers, _numbers(LEAST_UNITS), strict=False))
        self._shares = self._prior = [number / unit for number, unit in zip(numbers, self._units, strict=True)]
        self._prior_weight = spread**-2
        self._sums = NormalEquations(len(numbers))


def _numbers(cost: StepCost) -> tuple[float, ...]:
    return (cost.step_s, cost.token_s, cost.context_token_s, cost.attended_token_s, cost.remote_token_s)


def _guess(numbers: tuple[int, ...], duration_s: float) -> StepCost:
    """Shares of a first step, for want of anything better: half of it is the weights', and attention has little."""
    shares = zip(GUESSED_SHARES, numbers, strict=False)
    return StepCost(*(share * duration_s / max(1, number) for share, number in shares))
