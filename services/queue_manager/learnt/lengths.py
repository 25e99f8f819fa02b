"""How long answers are: learnt online from those that ended, by model, tenant and kind of promise.

A sketch is a histogram of the last answers with bins of a quarter octave, each with its count and sum: means are exact,
spreads within some percent, whatever the shape (lengths of chats are far from log-normal: many short answers, a bulge,
a tail), and any cap can be put on it afterwards. An answer that reached its limit was *cut*: it says only that it would
have been longer. So the distribution is the product-limit estimate (Kaplan and Meier, 1958) over the bins:
S(v) = Π_{i ≤ v} (1 - ended_i / at_risk_i). Taking cut answers for ended ones would teach short lengths where clients
set small limits now and then. Nothing is seen behind the longest answer that has ended: there, what is left of S is
spread as the next coarser key has it behind that length, S(v) = S(l) S'(v) / S'(l). Short answers end first, so at
first most of a distribution is left; of answers in general, more is known by then. Where the coarser key has seen none
longer, what is left is put one mean residual life of a memoryless length (tokens seen / answers ended) behind it;
tokens seen are also those that running answers have drawn.

An answer that still runs is cut at what it has drawn by now. Without them lengths would be too short whenever load
grows, for short answers end first. At risk at v, within the memory, are those that have reached v within it: they ended
beyond v, or run beyond v, but did not when it began (left truncation). With weights w that fade, by parts::

    at_risk(v) = ∫ w d(E_v + R_v) = Σ w of those that ended beyond v + w(now) R_v(now) - ∫ R_v dw
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import msgspec

BINS_PER_OCTAVE = 4
MEMORY_REQUESTS = 4096  # answers older than about this many count less and less: exact before, exponential from then on
MIN_OBSERVED = 16  # answers of its own that a key needs; a coarser one speaks for it until then
MAX_KEYS = 1024  # sketches that are kept; the one that was heard of longest ago is forgotten first
PRIOR_TOKENS = (16, 64, 256, 1024)  # lengths that everything starts from, as if each had been seen once
MAX_WEIGHT = 1e9  # weights grow as older ones fade; beyond this all are scaled down
MIN_WEIGHT = 1e-9  # what has faded so far is dropped
LEAST_ALIVE = 1e-9  # probability below which nothing is left, but for rounding
OWN_BIN = 0.5  # of its bin that an answer which runs has behind it, on average


class Moments(NamedTuple):
    """Expected value of a number of tokens, and of its square."""

    mean: float
    square: float


class Bin(msgspec.Struct, array_like=True):
    """Weights and weighted sums of the answers of about one length."""

    ended: float = 0.0
    ended_tokens: float = 0.0
    cut: float = 0.0
    cut_tokens: float = 0.0


class LengthSketch(msgspec.Struct):
    """Histogram of lengths."""

    num_observed: int = 0
    weight: float = 1.0
    """Of the next answer; grows instead of all others shrinking."""
    bins: dict[int, Bin] = {}
    """By quarter octave."""
    running: dict[int, int] = {}
    """Answers that ran at the last look, by the bin of what they had drawn."""
    looked_at_weight: float = 1.0
    """`weight` at that time."""
    ran: dict[int, float] = {}
    """∫ R dw: answers that ran, by the same bins, for each change of `weight`."""

    def observe(self, tokens: int, *, is_cut: bool) -> None:
        """One more answer; ``is_cut``: it ended at its limit. One that ended at once counts as a token."""
        tokens = max(1, tokens)
        place = self.bins.setdefault(bin_of(tokens), Bin())
        if is_cut:
            place.cut += self.weight
            place.cut_tokens += self.weight * tokens
        else:
            place.ended += self.weight
            place.ended_tokens += self.weight * tokens
        self.num_observed += 1
        if self.num_observed >= MEMORY_REQUESTS:
            self.weight *= MEMORY_REQUESTS / (MEMORY_REQUESTS - 1)
        if self.weight > MAX_WEIGHT:
            self._scale_down()

    def look(self, running: dict[int, int]) -> None:
        """How many answers run now, by the bin of what they have drawn."""
        passed = self.weight - self.looked_at_weight
        if passed:
            for number, count in self.running.items():
                self.ran[number] = self.ran.get(number, 0.0) + passed * count
        self.running, self.looked_at_weight = running, self.weight

    def _scale_down(self) -> None:
        for number, place in list(self.bins.items()):
            scaled = Bin(*(value / self.weight for value in msgspec.structs.astuple(place)))
            if scaled.ended + scaled.cut > MIN_WEIGHT:
                self.bins[number] = scaled
            else:
                del self.bins[number]
        self.ran = {number: ran / self.weight for number, ran in self.ran.items() if ran / self.weight > MIN_WEIGHT}
        self.looked_at_weight /= self.weight
        self.weight = 1.0


def bin_of(tokens: float) -> int:
    """Of a length of at least a token."""
    return int(BINS_PER_OCTAVE * math.log2(max(1.0, tokens)))


def tokens_of(number: int) -> float:
    """In the middle of a bin, on a logarithmic scale."""
    return float(2.0 ** ((number + OWN_BIN) / BINS_PER_OCTAVE))


class Distribution:
    """Point masses at the mean length of each bin, with prefix sums: any question takes two bisections."""

    def __init__(self, sketch: LengthSketch, coarser: Distribution | None = None) -> None:
        self._num_observed = min(sketch.num_observed, MEMORY_REQUESTS)
        self._tokens, masses = _product_limit(sketch, coarser)
        firsts = list(map(mul, masses, self._tokens))
        self._mass = [0.0, *accumulate(masses)]
        self._first = [0.0, *accumulate(firsts)]
        self._second = [0.0, *accumulate(map(mul, firsts, self._tokens))]

    def behind(self, length: float) -> list[tuple[float, float]]:
        """Longer answers: each length, and its share of them."""
        low = bisect_right(self._tokens, length)
        alive = self._mass[-1] - self._mass[low]
        if alive <= LEAST_ALIVE:
            return []
        return [(self._tokens[i], (self._mass[i + 1] - self._mass[i]) / alive) for i in range(low, len(self._tokens))]

    def error(self, std_tokens: float) -> float:
        """Standard error of a mean length, whose lengths spread so much."""
        return std_tokens / math.sqrt(max(1, self._num_observed))

    def rest(self, limit: float, done: float = 0.0) -> Moments:
        """E[min(O, limit) - done | O > done]: tokens still to come when ``done`` have come without an end.

        An answer that has outlived every length seen is expected to begin anew: lengths are taken as memoryless there.
        And one that still runs, runs for one token at least.
        """
        if limit - done <= 1:
            return Moments(1.0, 1.0)
        low, high = bisect_right(self._tokens, done), bisect_right(self._tokens, limit)
        alive = self._mass[-1] - self._mass[low]
        if low == len(self._tokens):
            return self.rest(limit - done, 0.0)
        mass = first = second = 0.0
        if high > low:
            mass = self._mass[high] - self._mass[low]
            first = self._first[high] - self._first[low]
            second = self._second[high] - self._second[low]
        longer = alive - mass
        mean = first - done * mass + longer * (limit - done)
        square = second - 2 * done * first + done * done * mass + longer * (limit - done) ** 2
        return Moments(mean / alive, square / alive)


def _product_limit(sketch: LengthSketch, coarser: Distribution | None) -> tuple[list[float], list[float]]:
    """Lengths in tokens, shortest first, and the probability of each. Made anew for every answer: it has to be fast."""
    lengths: list[float] = []
    masses: list[float] = []
    numbers = sorted(sketch.bins.keys() | sketch.running.keys()) if sketch.running else sorted(sketch.bins)
    alive = 1.0
    longest = 0.0
    for place, at_risk in _at_risk(sketch, numbers):
        ended, cut = place.ended, place.cut
        if ended:
            mass = alive * ended / max(ended + cut, at_risk)
            longest = place.ended_tokens / ended
            lengths.append(longest)
            masses.append(mass)
            alive -= mass
        if cut:
            longest = max(longest, place.cut_tokens / cut)
    behind = coarser.behind(longest) if coarser is not None and alive > LEAST_ALIVE else []
    if behind:
        lengths += [tokens for tokens, _ in behind]
        masses += [alive * share for _, share in behind]
    elif alive > LEAST_ALIVE:
        # as if one answer had ended, where none has
        num_ended = max(sketch.weight, sum(place.ended for place in sketch.bins.values()))
        tokens = sum(place.ended_tokens + place.cut_tokens for place in sketch.bins.values())
        places = sketch.running.keys() | sketch.ran.keys()
        drawn = math.fsum(_run(sketch, number) * tokens_of(number) for number in places)
        tokens += max(0.0, drawn)
        lengths.append(longest + tokens / num_ended)
        masses.append(alive)
    return lengths, masses


def _at_risk(sketch: LengthSketch, numbers: list[int]) -> list[tuple[Bin, float]]:
    """Bins in which answers have ended, each with the weight of those that could have ended there."""
    found: list[tuple[Bin, float]] = []
    later = 0.0
    for number in reversed(numbers):
        run = _run(sketch, number)
        place = sketch.bins.get(number)
        if place is None:
            later += run
            continue
        here = place.ended + place.cut
        found.append((place, later + here + OWN_BIN * run))
        later += here + run
    found.reverse()
    return found


def _run(sketch: LengthSketch, number: int) -> float:
    """Weight of answers that run in a bin: w(now) R - ∫ R dw."""
    return sketch.weight * sketch.running.get(number, 0) - sketch.ran.get(number, 0.0)


class LengthKey(NamedTuple):
    """What is known of a request; ``""``: whichever it is."""

    weights: str = ""
    slo_kind: str = ""
    tenant: str = ""


ANY = LengthKey()
"""All answers, and the prior before there are any."""


class Lengths:
    """Learnt lengths of answers by what is known of a request. Owns `State.lengths`."""

    def __init__(self, sketches: dict[LengthKey, LengthSketch]) -> None:
        self._sketches = sketches
        self._distributions: dict[LengthKey, Distribution] = {}  # computed from the sketches, when asked
        if ANY not in sketches:
            prior = sketches[ANY] = LengthSketch()
            for tokens in PRIOR_TOKENS:
                prior.observe(tokens, is_cut=False)

    def observe(self, model: str, kind: str, tenant: str, tokens: int, *, is_cut: bool) -> None:
        """An answer has ended by itself, or at its limit (``is_cut``)."""
        for key in _keys(model, kind, tenant):
            sketch = self._sketches.pop(key, None) or LengthSketch()
            sketch.observe(tokens, is_cut=is_cut)
            self._sketches[key] = sketch  # at the end: the first is the one to forget
            self._distributions.pop(key, None)
        while len(self._sketches) > MAX_KEYS:
            oldest = next(iter(self._sketches))
            del self._sketches[oldest]
            self._distributions.pop(oldest, None)

    def look(self, model: str, running: Iterable[tuple[str, str, float]]) -> None:
        """All answers of a model that run now: (kind, tenant, tokens drawn)."""
        counts: dict[LengthKey, dict[int, int]] = {}
        for kind, tenant, tokens in running:
            number = bin_of(tokens)
            for key in _keys(model, kind, tenant)[:-1]:
                of_key = counts.setdefault(key, {})
                of_key[number] = of_key.get(number, 0) + 1
        for key, sketch in self._sketches.items():
            if key.weights == model:
                sketch.look(counts.get(key, {}))
                self._distributions.pop(key, None)

    def distribution(self, model: str, kind: str, tenant: str) -> Distribution:
        """Of the finest key that has enough answers of its own; the prior's at last."""
        return self._of_first([*filter(self._speaks, _keys(model, kind, tenant)), ANY])

    def _of_first(self, keys: Sequence[LengthKey]) -> Distribution:
        """Of the first of these, which are coarser and coarser."""
        distribution = self._distributions.get(keys[0])
        if distribution is None:
            coarser = self._of_first(keys[1:]) if keys[0] != ANY else None
            distribution = self._distributions[keys[0]] = Distribution(self._sketches[keys[0]], coarser)
        return distribution

    def of_model(self, model: str) -> Distribution:
        """Over all kinds of promises and tenants."""
        return self.distribution(model, "", "")

    def _speaks(self, key: LengthKey) -> bool:
        sketch = self._sketches.get(key)
        return sketch is not None and sketch.num_observed >= MIN_OBSERVED


def _keys(model: str, kind: str, tenant: str) -> tuple[LengthKey, ...]:
    """Finest first."""
    coarser = (LengthKey(model, kind), LengthKey(model), ANY)
    return (LengthKey(model, kind, tenant), *coarser) if tenant else coarser
