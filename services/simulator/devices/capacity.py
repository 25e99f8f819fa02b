"""How many devices a workload needs, so that a share of its promises is kept with some confidence.

A trial is a simulation of a sample of the workload. Requests of one trial hang together (they wait for each other), so
trials are what is independent: the bound on the mean attainment is a bootstrap over trials. More devices are taken not
to be worse, so the least number is found by doubling and bisection.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

MAX_DEVICES = 1024
NUM_RESAMPLES = 2_000

Trial = Callable[[int, int], float]
"""Attainment with so many devices, in the trial with this number. The same arguments give the same value."""


class CapacityError(RuntimeError):
    """No number of devices is enough; the text says how far the search went."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """Of some number of devices, over all trials."""

    num_devices: int
    mean: float
    low: float
    """The mean is no lower than this, with the confidence that was asked for."""
    high: float
    """Likewise no higher; each bound by itself."""
    trials: Sequence[float]


def attainment_of(num_devices: int, trials: Sequence[float], confidence: float) -> Attainment:
    """Mean over trials with one-sided percentile bootstrap bounds (Efron, The Annals of Statistics, 1979)."""
    random = Random(0)  # noqa: S311 - a resample is no secret
    means = sorted(statistics.mean(random.choices(trials, k=len(trials))) for _ in range(NUM_RESAMPLES))
    below = math.floor((1 - confidence) * NUM_RESAMPLES)
    return Attainment(num_devices, statistics.mean(trials), means[below], means[-1 - below], tuple(trials))


def least_devices(
    trial: Trial,
    target: float,
    num_trials: int,
    confidence: float,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[int, list[Attainment]]:
    """The least number whose lower bound reaches ``target``, and all numbers that were tried, in order.

    ``progress`` hears of each trial that is done. Raises `CapacityError` where `MAX_DEVICES` are not enough.
    """
    tried: dict[int, Attainment] = {}

    def is_enough(num_devices: int) -> bool:
        trials = []
        for number in range(num_trials):
            trials.append(trial(num_devices, number))
            progress(len(tried) * num_trials + len(trials))
        tried[num_devices] = attainment_of(num_devices, trials, confidence)
        return tried[num_devices].low >= target

    enough = 1
    while not is_enough(enough):
        if enough >= MAX_DEVICES:
            raise CapacityError(
                f"{enough} devices keep {tried[enough].mean:.1%} of the promises; {target:.1%} are asked"
            )
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough, [tried[number] for number in sorted(tried)]
