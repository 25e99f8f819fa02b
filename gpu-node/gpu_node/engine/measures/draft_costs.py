"""What guessed tokens cost a step: learnt from steps in which sequences decode, with guesses and without.

The learnt step cost says how long such a step takes without guesses. It does not say what a row more adds: a load that
only decodes cannot tell rows from the rest, and rows of guesses draw, which those of prompts do not. So that is learnt
apart, beside what the device waits for its host behind a step with guesses, which is taken in before the next is
planned. Of a step of n sequences with k guesses,

    measured / predicted without guesses  =  speed  +  row k / (2 (n + 1))  +  wait / 10 where the last had guesses,

by recursive least squares around a prior of 1 for each, for sizes of batches by powers of two. What is not seen is
forgotten: where guesses did not pay for some hundred steps, they are tried again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.measures.least_squares import NormalEquations
from shared.messages.nodes.step_cost import StepCost

NOISE = 0.1  # relative spread of a step around its prediction
MEMORY_STEPS = 128  # a step this long ago weighs 1/e of the present one
MAX_RATIO = 2.0  # a step counts as no longer than this times what was expected
WAIT_SHARE = 0.1  # of a step, what the prior says of the wait
PRIOR = (1.0, 1.0, 1.0)
SPREADS = (0.1, 1.0, 1.0)  # of what it says: steps without guesses are known, what guesses cost is not


@dataclass(frozen=True, slots=True)
class GuessingCost:
    """Of a batch of sequences that decode."""

    plain_s: float
    """Without guesses."""
    row_s: float
    """Of each guess."""
    wait_s: float
    """Of the device for its host, behind a step with any."""


class _Learnt:
    """Of batches of one size."""

    def __init__(self) -> None:
        self._sums = NormalEquations(len(PRIOR))
        self._numbers: list[float] | None = list(PRIOR)

    @property
    def numbers(self) -> list[float]:
        """Speed, row and wait."""
        if self._numbers is None:
            scaled = self._sums.solve([one / spread for one, spread in zip(PRIOR, SPREADS, strict=True)], 1.0)
            self._numbers = [number * spread for number, spread in zip(scaled, SPREADS, strict=True)]
        return self._numbers

    def observe(self, row: tuple[float, ...], ratio: float) -> None:
        """A step took ``ratio`` times what was predicted."""
        expected = sum(number * part for number, part in zip(self.numbers, row, strict=True))
        in_spreads = [part * spread for part, spread in zip(row, SPREADS, strict=True)]
        self._sums.add(in_spreads, min(ratio, MAX_RATIO * expected), NOISE**-2, 1 - 1 / MEMORY_STEPS)
        self._numbers = None


class DraftCosts:
    """Of one model on one device."""

    def __init__(self) -> None:
        self._learnt: dict[int, _Learnt] = {}  # by size; no more than powers of two of `max_num_seqs`
        self._had_guesses = False

    def of(self, num_sequences: int, predicted_s: float) -> GuessingCost:
        """Of a step of so many sequences that decode, which is predicted to take so long without guesses."""
        learnt = self._learnt.get(num_sequences.bit_length())
        speed, row, wait = PRIOR if learnt is None else learnt.numbers
        return GuessingCost(
            plain_s=speed * predicted_s,
            row_s=row * predicted_s * _row_share(num_sequences),
            wait_s=wait * predicted_s * WAIT_SHARE,
        )

    def observe(self, plan: StepPlan, took_s: float, cost: StepCost | None) -> None:
        """A step has taken ``took_s`` with the device's wait for its host before. ``cost``: as it was known before."""
        had_guesses, num_guesses = self._had_guesses, plan.num_draft_tokens
        self._had_guesses = num_guesses > 0
        if cost is None or not plan.sequences or not all(part.is_decode for part in plan.sequences):
            return
        num_sequences = len(plan.sequences)
        num_context = plan.num_context_tokens - num_guesses
        predicted_s = cost.predict_s(num_sequences, num_context, num_context, plan.num_remote_tokens)
        if predicted_s <= 0:
            return
        row = (1.0, num_guesses * _row_share(num_sequences), WAIT_SHARE * had_guesses)
        self._learnt.setdefault(num_sequences.bit_length(), _Learnt()).observe(row, took_s / predicted_s)


def _row_share(num_sequences: int) -> float:
    """Of a step, what the prior says of a row: half of an even share, were weights another."""
    return 0.5 / (num_sequences + 1)
