"""The value of an expression at a time, as Prometheus defines it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from tests.chaos.history import Sample
from tests.chaos.promql.parser import Aggregate, Binary, Call, Node, Number, PromqlError, Selector

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Points = list[tuple[float, float]]

STALE_S = 3.0
"""A process that has answered no scrape for so long has no series any more: three scrapes of a second."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda one, other: one < other,
    ">": lambda one, other: one > other,
    "<=": lambda one, other: one <= other,
    ">=": lambda one, other: one >= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
}
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / other if other else float("nan"),
}
_AGGREGATE: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
}


class Series:
    """Scraped samples by metric and labels."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._points: dict[str, dict[Labels, Points]] = defaultdict(dict)
        self._failed: dict[str, list[float]] = defaultdict(list)
        """Times at which a process did not answer."""
        for sample in sorted(samples, key=lambda one: one.at_s):
            if not sample.metrics:
                self._failed[sample.member].append(sample.at_s)
            for name, value in sample.metrics.items():
                metric, _, text = name.partition("{")
                labels = frozenset({*_LABEL.findall(text), ("instance", sample.member)})
                self._points[metric].setdefault(labels, []).append((sample.at_s, value))

    def now(self, selector: Selector, at_s: float) -> Vector:
        """The newest value of each series that is not stale."""
        found = {}
        for labels, points in self._matching(selector):
            place = bisect_right(points, (at_s, float("inf"))) - 1
            if place >= 0 and not self._is_stale(labels, points[place][0], at_s):
                found[labels] = points[place][1]
        return found

    def over(self, selector: Selector, at_s: float, range_s: float) -> Iterator[tuple[Labels, Points]]:
        """All values of the last ``range_s``."""
        for labels, points in self._matching(selector):
            first = bisect_right(points, (at_s - range_s, float("inf")))
            last = bisect_right(points, (at_s, float("inf")))
            # one more in front: windows here are short beside the distance of two scrapes
            yield labels, points[max(0, first - 1) : last]

    def _is_stale(self, labels: Labels, seen_s: float, at_s: float) -> bool:
        if at_s - seen_s > STALE_S:
            return True
        failed = self._failed[dict(labels)["instance"]]
        place = bisect_right(failed, at_s) - 1
        return place >= 0 and failed[place] > seen_s

    def _matching(self, selector: Selector) -> Iterator[tuple[Labels, Points]]:
        for labels, points in self._points[selector.metric].items():
            values = dict(labels)
            if all(_matches(values.get(label, ""), how, value) for label, how, value in selector.matchers):
                yield labels, points


def _matches(value: str, how: str, wanted: str) -> bool:
    if how in ("=", "!="):
        return (value == wanted) == (how == "=")
    return bool(re.fullmatch(wanted, value)) == (how == "=~")


class Evaluator:
    """Values over some series. ``time_scale`` shortens all ranges: a run of minutes stands for hours."""

    def __init__(self, series: Series, time_scale: float = 1.0) -> None:
        self._series = series
        self._time_scale = time_scale

    def vector(self, node: Node, at_s: float) -> Vector:
        """What the expression answers; a scalar is a series without labels."""
        match node:
            case Number(value):
                return {frozenset(): value}
            case Selector():
                return self._series.now(node, at_s)
            case Call():
                return self._call(node, at_s)
            case Aggregate():
                groups: dict[Labels, list[float]] = defaultdict(list)
                for labels, value in self.vector(node.of, at_s).items():
                    groups[_only(labels, node.by)].append(value)
                return {labels: _AGGREGATE[node.function](values) for labels, values in groups.items()}
            case Binary():
                return self._binary(node, at_s)

    def _call(self, call: Call, at_s: float) -> Vector:
        of = call.arguments[0]
        if call.function == "absent":
            return {} if self.vector(of, at_s) else {_known_labels(of): 1.0}
        if call.function == "clamp_min":
            [least] = self.vector(call.arguments[1], at_s).values()
            return {labels: max(value, least) for labels, value in self.vector(of, at_s).items()}
        if call.function == "histogram_quantile":
            [share] = self.vector(of, at_s).values()
            return _quantiles(share, self.vector(call.arguments[1], at_s))
        if not isinstance(of, Selector) or of.range_s is None:
            raise PromqlError(f"{call.function} wants a range")
        range_s = of.range_s * self._time_scale
        found = {}
        for labels, points in self._series.over(of, at_s, range_s):
            if len(points) > 1 or (points and call.function == "max_over_time"):
                found[labels] = _over(call.function, points, range_s)
        return found

    def _binary(self, node: Binary, at_s: float) -> Vector:
        left, right = self.vector(node.left, at_s), self.vector(node.right, at_s)
        if node.operator in ("or", "and", "unless"):
            return _set_operation(node, left, right)
        compare, compute = _COMPARE.get(node.operator), _COMPUTE.get(node.operator)
        found = {}
        for one_labels, other_labels, one, other in _pairs(node, left, right):
            if compute is not None:
                found[one_labels or other_labels] = compute(one, other)
            elif compare is not None and compare(one, other):
                found[one_labels or other_labels] = one
        return found


def _quantiles(share: float, buckets: Vector) -> Vector:
    """Of each histogram, the value below which ``share`` of what it has seen lies; evenly spread within a bucket."""
    histograms: dict[Labels, Points] = defaultdict(list)
    for labels, count in buckets.items():
        values = dict(labels)
        if "le" in values:
            bound = values.pop("le")
            histograms[frozenset(values.items())].append((float(bound), count))
    found = {}
    for labels, points in histograms.items():
        *bounds, (_, total) = sorted(points)
        if total > 0 and bounds:
            found[labels] = _quantile(share * total, bounds)
    return found


def _quantile(rank: float, bounds: Points) -> float:
    lower, below = 0.0, 0.0
    for bound, count in bounds:
        if count >= rank:
            return bound if count == below else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower  # in the last bucket, which has no upper bound


def _pairs(node: Binary, left: Vector, right: Vector) -> Iterator[tuple[Labels, Labels, float, float]]:
    """Series that belong together; a number belongs to all."""
    if isinstance(node.right, Number):
        [number] = right.values()
        yield from ((labels, labels, value, number) for labels, value in left.items())
    elif isinstance(node.left, Number):
        [number] = left.values()
        yield from ((labels, labels, number, value) for labels, value in right.items())
    else:
        by_key = {_key(labels, node.on): (labels, value) for labels, value in right.items()}
        for labels, value in left.items():
            if (found := by_key.get(_key(labels, node.on))) is not None:
                yield labels, found[0], value, found[1]


def _set_operation(node: Binary, left: Vector, right: Vector) -> Vector:
    if node.operator == "or":
        keys = {_key(labels, node.on) for labels in left}
        return left | {labels: value for labels, value in right.items() if _key(labels, node.on) not in keys}
    keys = {_key(labels, node.on) for labels in right}
    wanted = node.operator == "and"
    return {labels: value for labels, value in left.items() if (_key(labels, node.on) in keys) == wanted}


def _key(labels: Labels, on: tuple[str, ...] | None) -> Labels:
    return labels if on is None else _only(labels, on)


def _only(labels: Labels, names: tuple[str, ...]) -> Labels:
    return frozenset((name, value) for name, value in labels if name in names)


def _known_labels(node: Node) -> Labels:
    matchers = node.matchers if isinstance(node, Selector) else ()
    return frozenset((label, value) for label, how, value in matchers if how == "=")


def _over(function: str, points: Points, range_s: float) -> float:
    values = [value for _, value in points]
    if function == "max_over_time":
        return max(values)
    if function == "delta":
        return values[-1] - values[0]
    if function == "changes":
        return float(sum(one != other for one, other in pairwise(values)))
    # a counter that is less than before began anew
    grown = sum(other - one if other >= one else other for one, other in pairwise(values))
    return grown if function == "increase" else grown / range_s
