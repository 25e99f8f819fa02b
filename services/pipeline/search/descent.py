"""A good pipeline soon, by annealing over all that the two stages decide: shares, the order of each lane, and cuts.

Where the programs of `services.pipeline.search.structure` and `services.pipeline.search.allocation` begin, and all that
``--quick`` has time for. What is tried is played (`services.pipeline.schedules.elastic`). From all beginnings a little;
the better half goes on with twice as much, and so forth (successive halving: Karnin, Koren and Somekh, ICML'13). Chance
is counted, not drawn: the same layer gives the same pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from services.pipeline.operators.layer import LayerOperator
from services.pipeline.schedules.elastic import Candidate, ElasticLayer, PlayOutcome
from services.pipeline.schedules.schedule import Schedule

HOT, COLD = 0.012, 0.0001
"""Of the period: how much worse a change may be, about, at the beginning and at the end."""
WORTH_ASKING = 0.0005
"""Of the period, by which a play must be better before it is asked whether all its layers can be alike."""
STEP_CHANGES, SHARE_CHANGES, SHIFT_CHANGES, ORDER_CHANGES, CUT_CHANGES = 0.25, 0.45, 0.5, 0.8, 0.98
"""Of all changes, up to which they are of a share, by one step or to any, of when all rows from one on come, of a place
in a lane, of where a cut is; the rest, how many."""
MOST_SHIFT = 0.15
"""Of a period."""
MAX_PARTS = 4
"""Of an operator."""


@dataclass(frozen=True, slots=True)
class Annealed:
    """The best pipeline that was met, all its layers alike."""

    layer: ElasticLayer
    candidate: Candidate
    schedule: Schedule


class _Chance:
    """Numbers from 0 to 1 from a counter (a linear congruential generator: Knuth's MMIX)."""

    def __init__(self) -> None:
        self._state = 1

    def number(self) -> float:
        """From 0 to 1, without 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        """From 0, so many."""
        return int(self.number() * count)


def descend(beginnings: Sequence[tuple[ElasticLayer, Candidate]], num_plays: int, granule_rows: int) -> list[Annealed]:
    """The best of the beginnings that were played longest, the best first; none where no layers can be alike."""
    chance = _Chance()
    num_rounds = max(1, math.ceil(math.log2(len(beginnings))))
    found: list[Annealed] = []
    now = list(beginnings)
    for number in range(num_rounds):
        heat = HOT * (COLD / HOT) ** (0.5 * number / num_rounds)
        annealed = [_anneal(*one, num_plays // num_rounds // len(now), heat, chance, granule_rows) for one in now]
        found = sorted((one for one in annealed if one is not None), key=lambda one: one.schedule.period_s)
        if not found:
            return []
        now = [(one.layer, one.candidate) for one in found[: math.ceil(len(now) / 2)]]
    return found


def _anneal(
    layer: ElasticLayer, beginning: Candidate, num_plays: int, hot: float, chance: _Chance, granule_rows: int
) -> Annealed | None:
    """Metropolis: what is worse by d is kept with probability exp(-d / t), and t falls from hot to cold."""
    best: Annealed | None = None
    now, now_s, asked_s = beginning, math.inf, math.inf
    for step in range(num_plays):
        other = _changed(layer, now, chance, granule_rows) if step else beginning
        if step and other is now:
            continue
        heat = hot * (COLD / hot) ** (step / num_plays)
        outcome = layer.play(other, now_s * (1 - heat * math.log(1 - chance.number())))
        if outcome is None:
            continue
        now, now_s = other, outcome.period_s
        if now_s < asked_s * (1 - WORTH_ASKING):
            asked_s = now_s
            best = _better(layer, other, outcome, best)
    return best


def _better(layer: ElasticLayer, candidate: Candidate, outcome: PlayOutcome, best: Annealed | None) -> Annealed | None:
    schedule = layer.schedule(candidate, outcome)
    if schedule is None or (best is not None and schedule.period_s >= best.schedule.period_s):
        return best
    return Annealed(layer, candidate, schedule)


def _changed(layer: ElasticLayer, now: Candidate, chance: _Chance, granule_rows: int) -> Candidate:
    """One share, one place in a lane, one cut is another, or some rows come earlier or later."""
    kind = chance.number()
    one = chance.below(len(now.wanted))
    if kind < SHARE_CHANGES:
        most = layer.interference.num_shares
        step = 1 if chance.number() < 0.5 else -1
        share = now.wanted[one] + step if kind < STEP_CHANGES else 1 + chance.below(most)
        return replace(now, wanted=(*now.wanted[:one], min(most, max(1, share)), *now.wanted[one + 1 :]))
    if kind < SHIFT_CHANGES:
        parts, shift = layer.parts(now), MOST_SHIFT * (2 * chance.number() - 1)
        rows = [
            key + shift * (part.first_row >= parts[one].first_row) for key, part in zip(now.keys, parts, strict=True)
        ]
        return replace(now, keys=tuple(rows))
    if kind < ORDER_CHANGES:
        parts = layer.parts(now)
        others = [n for n, part in enumerate(parts) if n != one and part.lane is parts[one].lane]
        if not others:
            return now
        other, lag = others[chance.below(len(others))], chance.below(3) - 1
        key = now.keys[other] + lag + (1e-6 if chance.number() < 0.5 else -1e-6) * (1 + chance.number())
        return replace(now, keys=(*now.keys[:one], key, *now.keys[one + 1 :]))
    if kind < CUT_CHANGES:
        return _recut(layer.operators, now, chance, granule_rows)
    return _recounted(layer, now, one, chance, granule_rows)


def _recut(operators: Sequence[LayerOperator], now: Candidate, chance: _Chance, granule_rows: int) -> Candidate:
    """A cut moves by a granule: of one operator, or of all that are cut there."""
    places = [(name, at) for name, cuts in now.cuts.items() for at in cuts]
    if not places:
        return now
    name, at = places[chance.below(len(places))]
    is_joint = chance.number() < 0.5
    step = granule_rows if chance.number() < 0.5 else -granule_rows
    cuts = dict(now.cuts)
    for operator in operators:
        if operator.name == name or (is_joint and at in cuts[operator.name]):
            moved = tuple(cut + step if cut == at else cut for cut in cuts[operator.name])
            ends = (operator.first_row, *moved, operator.end_row)
            if all(low < high for low, high in pairwise(ends)):
                cuts[operator.name] = moved
    return replace(now, cuts=cuts)


def _recounted(layer: ElasticLayer, now: Candidate, one: int, chance: _Chance, granule_rows: int) -> Candidate:
    """A part becomes two, one behind the other, or one with the part behind it."""
    parts = layer.parts(now)
    part, cuts = parts[one], dict(now.cuts)
    places = cuts[part.operator]
    if chance.number() < 0.5:
        middle = part.first_row + (part.end_row - part.first_row) // 2 // granule_rows * granule_rows
        if middle == part.first_row or len(places) + 1 >= MAX_PARTS:
            return now
        cuts[part.operator] = tuple(sorted((*places, middle)))
        keys = (*now.keys[: one + 1], now.keys[one] + 1e-6, *now.keys[one + 1 :])
        return Candidate(cuts, keys, (*now.wanted[: one + 1], now.wanted[one], *now.wanted[one + 1 :]))
    if part.end_row not in places:
        return now
    cuts[part.operator] = tuple(place for place in places if place != part.end_row)
    return Candidate(
        cuts, (*now.keys[: one + 1], *now.keys[one + 2 :]), (*now.wanted[: one + 1], *now.wanted[one + 2 :])
    )
