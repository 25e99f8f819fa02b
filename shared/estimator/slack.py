"""What the wait of a request with slack grows to where a batch leaves headroom, until its slack is over.

Who is patient waits for a place in a batch that is kept small, which works at a share p of a full batch's throughput;
who is not joins as long as requests fit. Patience ends at the t where all that is due before would need longer than
there is, if it were done at the pace σ of a full batch. With A seconds of work of a full batch due before ::

    slack(t) = due - now - t - A(t) / σ,    dA/dt = -p (1 - Σ ρ_i [t < h_i])

since newcomers who go ahead (`shared.estimator.overtaking`; shares ρ of the small batch) are due before as well. So
until then W, the wait in the small batch, is worked off at 1 - Σ ρ, and behind it what that has left of it in the full
batch, W' / W of it, at 1 - p Σ ρ: work conservation, with rates that change at known times. Slack may also grow, as it
does with p (1 - Σ ρ) > σ: then patience lasts until the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shared.estimator.overtaking import MOST_SHARE, Stream, newcomers_s2
from shared.estimator.wait import NEVER, Wait


@dataclass(frozen=True, slots=True)
class BatchSlack:
    """For how long a request waits for headroom, and what comes behind it."""

    slack_s: float
    """At ``t = 0``; no patience where it is not above 0."""
    pace: float
    """p: throughput of the batch that leaves headroom, of a full one's; 1 at most."""
    slowest: float
    """σ: share of a full batch's throughput with which slack is reckoned."""
    full: Wait
    """How long the wait would take in the full batch if none came: W'."""


def patient(wait: Wait, streams: Iterable[Stream], patience: BatchSlack) -> Wait:
    """How long a request waits that would wait for ``wait`` in the small batch if none came; O(n log n).

    ``streams`` are shares of the small batch. Without slack it is `shared.estimator.overtaking.overtaken` in the full
    batch, and with enough of it in the small one.
    """
    if wait == NEVER or patience.full == NEVER:
        return NEVER
    drain = _Drain(wait, sorted((one for one in streams if one.horizon_s > 0), key=lambda one: one.horizon_s), patience)
    return drain.run()


class _Drain:
    """Works a wait off, from one time at which the rate changes to the next."""

    def __init__(self, wait: Wait, streams: list[Stream], patience: BatchSlack) -> None:
        self._small_s = max(0.0, wait.mean_s)
        self._full_s = min(self._small_s, max(0.0, patience.full.mean_s))
        self._stds_s = (wait.std_s, patience.full.std_s)
        self._streams = streams
        self._patience = patience
        self._slack_s = patience.slack_s
        self._is_patient = patience.slack_s > 0.0
        self._left_s = self._small_s if self._is_patient else self._full_s
        self._now_s = 0.0

    def run(self) -> Wait:
        share = math.fsum(one.share for one in self._streams)
        for one in self._streams:
            if self._until(one.horizon_s, share):
                break
            share -= one.share
        else:
            share = 0.0
            self._until(math.inf, share)
        pace = 1.0 if self._is_patient else self._patience.pace
        variance = self._stds_s[not self._is_patient] ** 2 + pace**2 * newcomers_s2(self._streams, self._now_s)
        return Wait(self._now_s, math.sqrt(variance) / self._rate(share))

    def _rate(self, share: float) -> float:
        pace = 1.0 if self._is_patient else self._patience.pace
        return 1 - min(max(0.0, pace * share), MOST_SHARE)

    def _until(self, end_s: float, share: float) -> bool:
        """Go on until then, or until nothing is left: whether that comes first."""
        if self._is_patient and self._loses_patience(end_s, share):
            self._left_s *= self._full_s / self._small_s
        rate = self._rate(share)
        done_s = self._now_s + self._left_s / rate
        if done_s <= end_s:
            self._now_s = done_s
            return True
        self._slack_s -= self._loss(share) * (end_s - self._now_s)
        self._left_s -= rate * (end_s - self._now_s)
        self._now_s = end_s
        return False

    def _loses_patience(self, end_s: float, share: float) -> bool:
        """Before then, and before nothing is left; time goes on until it happens."""
        loss, rate = self._loss(share), self._rate(share)
        if loss <= 0.0:
            return False
        after_s = self._slack_s / loss
        if self._now_s + after_s >= end_s or after_s >= self._left_s / rate:
            return False
        self._now_s += after_s
        self._left_s -= rate * after_s
        self._is_patient = False
        return True

    def _loss(self, share: float) -> float:
        """Slack that is lost a second."""
        return 1 - self._patience.pace * self._rate(share) / self._patience.slowest
