"""Clusters of requests that are alike in length: k-means over (log2 prompt, log2 expected output) for each line, which
is a model and a kind of promise (QLM, SoCC'24, Algorithm 1).

Only the centres are learnt anew, now and then, from the last requests: what is grouped stays where it is, since its
entries stand in a group's stream. Centres are in order, so a cluster keeps its number, more or less, when they move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from shared.messages.requests.request_kind import RequestKind

CELLS_PER_OCTAVE = 2  # resolution of both lengths; requests in one cell count together, which bounds the work
WINDOW_REQUESTS = 512  # requests of a line that its centres are learnt from
RECLUSTER_REQUESTS = 256  # learnt again after so many more,
RECLUSTER_S = 60.0  # or with the next request after so long
MAX_CLUSTERS = 4
MAX_ROUNDS = 8  # of k-means
MAX_LINES = 256  # that are remembered; the one that was heard of longest ago is forgotten first
MIN_FALL = 0.5  # one more cluster has to take away this share of the inertia that is left,
MIN_SPREAD_OCTAVES = 0.5  # of which there has to be more than this, as distance from the centre (root mean square)

LengthPoint = tuple[float, float]
"""log2 of the prompt's tokens, log2 of the expected output tokens."""


class LengthClusters(msgspec.Struct):
    """Clusters of one line."""

    window: list[tuple[int, int]] = []
    """Cells of the last requests, a ring."""
    next_place: int = 0
    num_new: int = 0
    """Requests since the centres were learnt."""
    learnt_s: float = -math.inf
    centres: list[LengthPoint] = []
    """In order."""


class Clusters:
    """Finds the cluster of a request. Owns `State.clusters`."""

    def __init__(self, lines: dict[RequestKind, LengthClusters]) -> None:
        self._lines = lines

    def nearest(self, kind: RequestKind, prompt_tokens: float, output_tokens: float, now: float) -> int:
        """Number of the cluster whose centre is nearest; the request is remembered for the next learning."""
        clusters = self._lines.pop(kind, None) or LengthClusters()
        self._lines[kind] = clusters  # at the end: the first is the one to forget
        if len(self._lines) > MAX_LINES:
            del self._lines[next(iter(self._lines))]
        point = _point(prompt_tokens, output_tokens)
        _remember(clusters, (round(CELLS_PER_OCTAVE * point[0]), round(CELLS_PER_OCTAVE * point[1])))
        if clusters.num_new >= RECLUSTER_REQUESTS or now - clusters.learnt_s >= RECLUSTER_S:
            clusters.centres = cluster(clusters.window)
            clusters.num_new, clusters.learnt_s = 0, now
        return _nearest(point, clusters.centres)

    def peek(self, kind: RequestKind, prompt_tokens: float, output_tokens: float) -> int:
        """The same for a request that may come; nothing is remembered."""
        clusters = self._lines.get(kind)
        return _nearest(_point(prompt_tokens, output_tokens), clusters.centres) if clusters is not None else 0


def _point(prompt_tokens: float, output_tokens: float) -> LengthPoint:
    return (math.log2(max(1.0, prompt_tokens)), math.log2(max(1.0, output_tokens)))


def _remember(clusters: LengthClusters, cell: tuple[int, int]) -> None:
    if len(clusters.window) < WINDOW_REQUESTS:
        clusters.window.append(cell)
    else:
        clusters.window[clusters.next_place] = cell
    clusters.next_place = (clusters.next_place + 1) % WINDOW_REQUESTS
    clusters.num_new += 1


def cluster(cells: Sequence[tuple[int, int]]) -> list[LengthPoint]:
    """Centres of as many clusters as pay: each more must take away `MIN_FALL` of the inertia that is left.

    The next one starts at the cell with the most inertia (quantiles of the lengths would never find the few mega
    prompts among many short ones), so inertia never grows. Deterministic: whatever ties goes to the first.
    """
    weights = Counter(cells)
    points = [((x / CELLS_PER_OCTAVE, y / CELLS_PER_OCTAVE), weights[x, y]) for x, y in sorted(weights)]
    centres, inertia = k_means(points, [points[0][0]])
    while len(centres) < MAX_CLUSTERS and inertia > MIN_SPREAD_OCTAVES**2 * len(cells):
        inertias = [_inertia(point, weight, centres) for point, weight in points]
        worst, _ = points[inertias.index(max(inertias))]
        more, rest = k_means(points, [*centres, worst])
        if rest > (1 - MIN_FALL) * inertia:
            break
        centres, inertia = more, rest
    return sorted(centres)


def k_means(
    points: Sequence[tuple[LengthPoint, int]], centres: Sequence[LengthPoint]
) -> tuple[list[LengthPoint], float]:
    """Lloyd's algorithm on weighted points; answers the centres that are nearest to some, and the inertia Σ w · d²."""
    found = list(centres)
    for _ in range(MAX_ROUNDS):
        sums = [[0.0, 0.0, 0.0] for _ in found]
        for point, weight in points:
            total = sums[_nearest(point, found)]
            total[0] += weight
            total[1] += weight * point[0]
            total[2] += weight * point[1]
        moved = [(x / weight, y / weight) for weight, x, y in sums if weight]
        if moved == found:
            break
        found = moved
    return found, sum(_inertia(point, weight, found) for point, weight in points)


def _inertia(point: LengthPoint, weight: int, centres: Sequence[LengthPoint]) -> float:
    _, distance = _nearest_of(point, centres)
    return weight * distance


def _nearest(point: LengthPoint, centres: Sequence[LengthPoint]) -> int:
    number, _ = _nearest_of(point, centres)
    return number


def _nearest_of(point: LengthPoint, centres: Sequence[LengthPoint]) -> tuple[int, float]:
    """Its number, and how far it is: squared, in octaves."""
    x, y = point
    best, least = 0, math.inf
    for number, (centre_x, centre_y) in enumerate(centres):
        distance = (x - centre_x) ** 2 + (y - centre_y) ** 2
        if distance < least:
            best, least = number, distance
    return best, least
