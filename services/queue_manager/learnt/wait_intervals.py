"""How wide the 90 % bound of a predicted wait has to be, learnt from the bounds that were kept and missed.

A forecast N(mean, std) has its 90 % quantile at mean + z std with z = 1.28, if its spread is right. Here z is moved by
what came, for each model, kind of promise and size of wait::

    z' = z + η (missed - 0.1)

which is adaptive conformal inference (Gibbs and Candès, NeurIPS 2021, eq. 2) on the scores (actual - mean) / std, in
the form that moves the quantile itself (Angelopoulos, Candès and Tibshirani, NeurIPS 2023). z is 1.28 where nothing was
seen, and not much less where all bounds hold: those of a calm hour would narrow those of the surge behind it, which is
told before it is seen. So 10 % are missed in the long run, however waits are distributed, as long as z is between its
limits.

A bound that is over counts at once, not when the wait is: while a queue grows, the short waits are known first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from shared.estimator.wait import NEVER, Wait

UPPER = 0.9  # of the predictions that clients are told beside the mean
NORMAL_Z = NormalDist().inv_cdf(UPPER)
STEP = 0.2  # η: a miss moves z by 0.18, a bound that was kept by 0.02
LEAST_Z, MOST_Z = 0.84, 8.0  # the least: four of five, if the spread is right
OCTAVES = 2  # of predicted waits that share a z
MAX_TOLD = 512  # predictions that are watched at a time
MAX_WIDTHS = 512  # (model, kind, size) that are remembered; the one heard of longest ago is forgotten first


class WaitKind(NamedTuple):
    """Predicted waits that share a z."""

    weights: str
    slo_kind: str
    size: int
    """Of the predicted wait, in `OCTAVES`."""


class WatchedInterval(msgspec.Struct, array_like=True):
    """A bound of which it is not known yet whether it is kept."""

    key: WaitKind
    until_s: float
    """When it is over."""
    is_judged: bool = False
    """It is known by now: it was missed."""


class WaitIntervals:
    """Owns `State.widths`, z by model, kind of promise and size of wait, and `State.open_bounds`."""

    def __init__(self, widths: dict[WaitKind, float], told: dict[str, WatchedInterval], *, is_on: bool = True) -> None:
        self._widths = widths
        self._told = told
        self._is_on = is_on

    def widened(self, model: str, slo_kind: str, wait: Wait) -> Wait:
        """The wait with the spread that it has to have."""
        if wait == NEVER or not self._is_on:
            return wait
        return Wait(wait.mean_s, wait.std_s * self._widths.get(_key(model, slo_kind, wait), NORMAL_Z) / NORMAL_Z)

    def watch(self, request_id: str, model: str, slo_kind: str, wait: Wait, now: float) -> None:
        """See whether a request that waits has its place within the bound of this forecast, unless it is watched."""
        if request_id not in self._told and len(self._told) < MAX_TOLD and wait != NEVER:
            until_s = now + self.widened(model, slo_kind, wait).quantile(UPPER)
            self._told[request_id] = WatchedInterval(_key(model, slo_kind, wait), until_s)

    def hear(self, started: Iterable[str], ended: Iterable[str], now: float) -> None:
        """These requests were pulled; those wait no more, and have no place."""
        for request_id in started:
            self.started(request_id, now)
        for request_id in ended:
            self.forget(request_id)

    def started(self, request_id: str, now: float) -> None:
        """A request has its place."""
        told = self._told.pop(request_id, None)
        if told is not None and not told.is_judged:
            self._judge(told.key, missed=now > told.until_s)

    def look(self, now: float) -> None:
        """A request that should have its place by now has missed its bound."""
        for told in self._told.values():
            if not told.is_judged and now > told.until_s:
                self._judge(told.key, missed=True)
                told.is_judged = True

    def forget(self, request_id: str) -> None:
        """It does not wait any more, and has no place."""
        self._told.pop(request_id, None)

    def _judge(self, key: WaitKind, *, missed: bool) -> None:
        z = self._widths.pop(key, NORMAL_Z)  # and to the end: the first is the one to forget
        self._widths[key] = min(MOST_Z, max(LEAST_Z, z + STEP * (missed - (1 - UPPER))))
        if len(self._widths) > MAX_WIDTHS:
            del self._widths[next(iter(self._widths))]


def _key(model: str, slo_kind: str, wait: Wait) -> WaitKind:
    return WaitKind(model, slo_kind, int(math.log2(1 + wait.mean_s)) // OCTAVES)
