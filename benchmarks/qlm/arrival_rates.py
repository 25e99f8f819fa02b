"""How well rates of arrival are learnt: by change points, as the queue manager does it, beside a fading mean.

Streams that stay, change at once, drift, or come in bunches, over several seeds. Each second the learnt rate is
compared with the true one; told is the root of the mean square of the relative error.

    python benchmarks/qlm/arrival_rates.py --json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from random import Random
from typing import Protocol

from services.queue_manager.learnt.arrivals import ArrivalRates, Flow
from services.queue_manager.learnt.lifetimes import Lifetimes
from services.simulator.workloads.arrivals import poisson
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.slo import Slo

FADING_S = (60.0, 240.0)
"""Memories of the fading means."""
NUM_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A stream, and from when until when its learnt rate is judged."""

    name: str
    rate_per_s: Callable[[float], float]
    begin_s: float
    end_s: float
    bunch: int = 1
    """As many come at once, on average."""


def stays(per_s: float) -> Callable[[float], float]:
    """One rate."""
    return lambda _: per_s


def changes(before: float, after: float, at_s: float) -> Callable[[float], float]:
    """Two rates."""
    return lambda now: before if now < at_s else after


def drifts(mean: float, period_s: float) -> Callable[[float], float]:
    """By half more and less, again and again."""
    return lambda now: mean * (1 + 0.5 * math.sin(2 * math.pi * now / period_s))


CASES = (
    Case("stays at 3/s", stays(3.0), 100.0, 700.0),
    Case("stays at 0.3/s", stays(0.3), 100.0, 700.0),
    Case("stays at 3/s, in bunches of four", stays(3.0), 100.0, 700.0, bunch=4),
    Case("from 2/s to 3/s: the first two minutes", changes(2.0, 3.0, 300.0), 300.0, 420.0),
    Case("from 2/s to 3/s: five minutes behind them", changes(2.0, 3.0, 300.0), 420.0, 720.0),
    Case("from 1/s to 8/s: the first two minutes", changes(1.0, 8.0, 300.0), 300.0, 420.0),
    Case("from 8/s to 1/s: the first two minutes", changes(8.0, 1.0, 300.0), 300.0, 420.0),
    Case("2/s, by half more and less in ten minutes", drifts(2.0, 600.0), 300.0, 900.0),
    Case("2/s, by half more and less in two minutes", drifts(2.0, 120.0), 300.0, 900.0),
)


class Learner(Protocol):
    """Is told who comes."""

    def add(self, now: float) -> None:
        """Another one."""

    def per_s(self, now: float) -> float:
        """The rate so far."""


class FadingMean:
    """Requests of the last time, older ones counted the less."""

    def __init__(self, memory_s: float, begin_s: float) -> None:
        self._memory_s, self._begin_s, self._seen_s, self._num = memory_s, begin_s, begin_s, 0.0

    def add(self, now: float) -> None:
        """Another one."""
        self._num = self._num * math.exp((self._seen_s - now) / self._memory_s) + 1
        self._seen_s = now

    def per_s(self, now: float) -> float:
        """The rate so far."""
        num = self._num * math.exp((self._seen_s - now) / self._memory_s)
        return num / (self._memory_s * -math.expm1(-(now - self._begin_s) / self._memory_s))


@dataclass(slots=True)
class Request:
    """As far as arrivals look at it."""

    slo: Slo
    model: str = "m"
    prompt_tokens: int = 1
    max_tokens: int = 1


REQUEST = Request(Slo("interactive", deadline_s=20.0))


class ChangePoints:
    """The queue manager's own, which learns from the gaps how bunched the stream is."""

    def __init__(self, begin_s: float) -> None:
        self._flows: dict[RequestKind, Flow] = {}
        self._arrivals = ArrivalRates(self._flows, Lifetimes())
        self.add(begin_s)

    def add(self, now: float) -> None:
        """Another one."""
        self._arrivals.observe(REQUEST, now)

    def per_s(self, now: float) -> float:
        """The rate so far."""
        (flow,) = self._flows.values()
        return flow.estimate(now).per_s


def drawn(case: Case, random: Random) -> Iterator[float]:
    """Times at which requests come: by thinning a stream of the highest rate."""
    most = max(case.rate_per_s(second) for second in range(int(case.end_s)))
    times_s = poisson(most / case.bunch, math.ceil(1.2 * most / case.bunch * case.end_s) + 100, random)
    for time_s in takewhile(lambda time_s: time_s < case.end_s, times_s):
        if random.random() < case.rate_per_s(time_s) / most:
            yield time_s
            while random.random() < 1 - 1 / case.bunch:
                yield time_s


def square_error(case: Case, learner: Learner, times_s: Sequence[float]) -> float:
    """Mean square of the relative error, each second."""
    errors = []
    place = 0
    for second in range(int(case.end_s)):
        while place < len(times_s) and times_s[place] <= second:
            learner.add(times_s[place])
            place += 1
        if second >= case.begin_s:
            errors.append(learner.per_s(second) / case.rate_per_s(second) - 1)
    return statistics.mean(error**2 for error in errors)


def measure(case: Case, num_seeds: int) -> dict[str, float]:
    """Relative error by learner."""
    learners: dict[str, Callable[[float], Learner]] = {
        f"fading mean of {memory_s:.0f} s": partial(FadingMean, memory_s) for memory_s in FADING_S
    }
    learners["change points"] = ChangePoints
    streams = [list(drawn(case, Random(f"{case.name} {seed}"))) for seed in range(num_seeds)]
    found = {}
    for name, make in learners.items():
        squares = [square_error(case, make(times_s[0]), times_s[1:]) for times_s in streams]
        found[name] = round(math.sqrt(statistics.mean(squares)), NUM_DIGITS)
    return found


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    results = {case.name: measure(case, arguments.seeds) for case in CASES}
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for name, errors in results.items():
        print(f"{name}:", ", ".join(f"{learner} {100 * error:.1f} %" for learner, error in errors.items()))


if __name__ == "__main__":
    main()
