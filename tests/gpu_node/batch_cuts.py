"""Programs whose operators work on shares of the batch, cut at random: what no pass may change a number by."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from gpu_node.graph.program import OperatorKind, Program
from gpu_node.graph.share import DECODE, LOCAL, PREFILL, REMOTE, WHOLE, Range, Share, share_of

TWICE, THRICE = ([WHOLE.cut(index, count) for index in range(count)] for count in (2, 3))


def in_shares(program: Program, shares: Sequence[Share]) -> Program:
    """Each operator once for each of ``shares``, which make up the batch."""
    return _cut(program, lambda: shares)


@dataclass(frozen=True)
class RandomCuts:
    """A pass that cuts each operator in a way of its own."""

    seed: int

    def __call__(self, program: Program) -> Program:
        numbers = random.Random(self.seed)
        return _cut(program, lambda: list(random_shares(numbers)))


def _cut(program: Program, shares: Callable[[], Sequence[Share]]) -> Program:
    operators = []
    for operator in program.operators:
        if operator.kind is OperatorKind.POLL:
            operators.append(operator)
            continue
        parts = [operator.share & share for share in shares()]
        operators += [replace(operator, share=part) for part in parts if part.is_possible]
    cut = replace(program, operators=tuple(operators))
    cut.check()
    return cut


def random_shares(numbers: random.Random, share: Share = WHOLE, depth: int = 0) -> Iterator[Share]:
    """Shares in random order that make up ``share``: by phase, by residence, in even and uneven ranges, nested."""
    match numbers.randrange(9) if depth < 2 else 0:
        case 1:
            parts = [share & part for part in (LOCAL, REMOTE)]
        case 2:
            parts = [share & part for part in (PREFILL, DECODE)]
        case 3:
            cuts = sorted({Fraction(0), Fraction(1), *(Fraction(numbers.randint(1, 15), 16) for _ in range(2))})
            parts = [share & share_of(Range(start=a, end=b)) for a, b in pairwise(cuts)]
        case 4 | 5:
            count = numbers.randint(2, 3)
            parts = [share.cut(index, count) for index in range(count)]
        case _:
            yield share
            return
    numbers.shuffle(parts)
    for part in parts:
        if part.is_possible:
            yield from random_shares(numbers, part, depth + 1)
