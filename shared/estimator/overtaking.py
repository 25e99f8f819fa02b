"""What a wait grows to while newcomers go ahead of it.

Who waits for ``work`` device seconds is served by what newcomers leave of the device. With streams of them, each of
which takes a share ρ of the device's time until its horizon h, the wait t is where that has been worked off::

    W = ∫ (1 - Σ ρ_i [s < h_i]) ds  from 0 to t        which is  t = W + Σ ρ_i min(t, h_i)

Without horizons it is t = W / (1 - Σ ρ), the wait in a queue with priorities (A. Cobham, Priority Assignment in Waiting
Line Problems, Operations Research 2, 1954; eq. 3 over the classes that go first). A horizon is when a stream stops to
overtake: who comes later than that is due later. Newcomers do not come evenly: as a Poisson stream they add the
variance of a compound one, and each second of work more or less counts 1 / (1 - ρ) times, as in the delay busy period
(Conway, Maxwell and Miller, Theory of Scheduling, 1967, §8-4)::

    N_i = ρ_i min(t, h_i),    Var t = (Var W + Σ λ_i E[S_i²] min(t, h_i) + (ε Σ N_i)² + Σ (e_i N_i)²) / (1 - ρ(t))²

Shares are learnt, so they err by some percent, ε, all alike, and each by an e of its own (1 / √n, where its rate is
known from n that came); 1 / (1 - ρ) makes a multiple of that where ρ is near 1. Together they count as `MOST_SHARE` at
most: where newcomers need all of a device and never stop, the wait has no mean at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.estimator.wait import NEVER, Wait

MOST_SHARE = 0.85  # of a device that newcomers are taken to need at a time
SHARE_ERROR = 0.05  # ε: of the shares, as a standard deviation


def held_share(num_present: float) -> float:
    """Of the time, what a node serves requests of which so many are there on average: 1 - exp(-N), as in M/G/∞.

    `MOST_SHARE` at most.
    """
    return min(MOST_SHARE, -math.expm1(-num_present))


@dataclass(frozen=True, slots=True)
class Stream:
    """Newcomers that go ahead of a request that waits."""

    share: float
    """ρ = λ E[S]: device seconds a second."""
    square_s: float
    """λ E[S²]: of the same, the rate of the variance."""
    horizon_s: float
    """Who comes later than this does not go ahead."""
    error: float = 0.0
    """e: relative standard error of the share, beside what is wrong for all streams alike."""


def overtaken(wait: Wait, streams: Iterable[Stream]) -> Wait:
    """How long a request waits that would wait for ``wait`` if none came; O(n log n)."""
    if wait == NEVER:
        return NEVER
    ahead = sorted((one for one in streams if one.horizon_s > 0), key=lambda one: one.horizon_s)
    share = math.fsum(one.share for one in ahead)
    left_s, now_s = max(0.0, wait.mean_s), 0.0
    for one in ahead:
        rate = 1 - min(share, MOST_SHARE)
        if left_s <= rate * (one.horizon_s - now_s):
            break
        left_s -= rate * (one.horizon_s - now_s)
        now_s = one.horizon_s
        share -= one.share
    else:
        share = 0.0
    rate = 1 - min(max(0.0, share), MOST_SHARE)
    end_s = now_s + left_s / rate
    return Wait(end_s, math.sqrt(wait.std_s**2 + newcomers_s2(ahead, end_s)) / rate)


def newcomers_s2(ahead: Sequence[Stream], end_s: float) -> float:
    """Variance of the work that newcomers bring until then."""
    chance = math.fsum(one.square_s * min(end_s, one.horizon_s) for one in ahead)
    works_s = [one.share * min(end_s, one.horizon_s) for one in ahead]
    learnt = SHARE_ERROR * math.fsum(works_s)
    each = math.fsum((one.error * work_s) ** 2 for one, work_s in zip(ahead, works_s, strict=True))
    return chance + learnt**2 + each
