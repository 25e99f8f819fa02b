"""Clusters of lengths: k-means by hand, how many clusters pay, when centres are learnt anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.learnt.clusters import (
    MAX_CLUSTERS,
    MAX_LINES,
    RECLUSTER_REQUESTS,
    RECLUSTER_S,
    WINDOW_REQUESTS,
    Clusters,
    LengthClusters,
    cluster,
    k_means,
)
from shared.messages.requests.request_kind import RequestKind

# --- k-means --------------------------------------------------------------------------------------------------------


def test_one_centre_is_the_mean_and_inertia_the_sum_of_squares() -> None:
    points = [((0.0, 0.0), 3), ((4.0, 2.0), 1)]
    assert k_means(points, [(0.0, 0.0)]) == ([(1.0, 0.5)], 3 * (1 + 0.25) + (9 + 2.25))


def test_centres_move_until_they_are_the_means_of_those_near_them() -> None:
    points = [((x, 0.0), 1) for x in (0.0, 1.0, 9.0, 10.0)]
    assert k_means(points, [(0.0, 0.0), (1.0, 0.0)]) == ([(0.5, 0.0), (9.5, 0.0)], 1.0)


def test_a_point_between_two_centres_goes_to_the_first() -> None:
    points = [((0.0, 0.0), 2), ((1.0, 0.0), 1), ((2.0, 0.0), 2)]
    centres, inertia = k_means(points, [(0.0, 0.0), (2.0, 0.0)])
    assert centres == [(1 / 3, 0.0), (2.0, 0.0)]
    assert inertia == pytest.approx(2 / 9 + 4 / 9)


def test_a_centre_that_is_nearest_to_nobody_is_left_out() -> None:
    assert k_means([((1.0, 1.0), 9)], [(1.0, 1.0), (8.0, 8.0)]) == ([(1.0, 1.0)], 0.0)


# --- how many -------------------------------------------------------------------------------------------------------


def test_lengths_within_half_an_octave_are_one_cluster() -> None:
    assert cluster([(10, 10)] * 50 + [(11, 10)] * 50) == [(5.25, 5.0)]


def test_short_and_long_prompts_are_two_clusters() -> None:
    assert cluster([(10, 16), (11, 16)] * 50 + [(24, 16), (25, 16)] * 50) == [(5.25, 8.0), (12.25, 8.0)]


def test_a_few_mega_prompts_are_found_beside_many_others() -> None:
    assert cluster([(14, 14)] * 97 + [(28, 14)] * 3) == [(7.0, 7.0), (14.0, 7.0)]


def test_there_are_no_more_clusters_than_the_bound() -> None:
    apart = [(10 * x, 10 * y) for x in range(3) for y in range(3)]
    assert len(cluster(apart * 10)) <= MAX_CLUSTERS


cells = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 24)), min_size=1, max_size=60)


@given(cells, st.randoms(use_true_random=False))
def test_clusters_do_not_depend_on_the_order_of_arrival(window: list[tuple[int, int]], chance: object) -> None:
    shuffled = list(window)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert cluster(shuffled) == cluster(window)


@given(cells)
def test_centres_are_few_in_order_and_among_the_points(window: list[tuple[int, int]]) -> None:
    centres = cluster(window)
    assert 1 <= len(centres) <= MAX_CLUSTERS
    assert centres == sorted(centres)
    for axis in (0, 1):
        values = [cell[axis] / 2 for cell in window]
        assert all(min(values) - 1e-9 <= centre[axis] <= max(values) + 1e-9 for centre in centres)


# --- online ---------------------------------------------------------------------------------------------------------


def test_the_first_request_makes_the_first_cluster() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    assert Clusters(state).nearest(RequestKind("a", "interactive"), 64, 256, now=5.0) == 0
    assert state[RequestKind("a", "interactive")].centres == [(6.0, 8.0)]


def test_centres_are_learnt_anew_after_so_many_requests() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    clusters = Clusters(state)
    for _ in range(RECLUSTER_REQUESTS // 2):
        clusters.nearest(RequestKind("a", "x"), 16, 64, now=0.0)
    numbers = [clusters.nearest(RequestKind("a", "x"), 4096, 64, now=0.0) for _ in range(RECLUSTER_REQUESTS // 2 + 1)]
    assert state[RequestKind("a", "x")].centres == [(4.0, 6.0), (12.0, 6.0)]
    assert numbers == [0] * (RECLUSTER_REQUESTS // 2) + [1]
    assert clusters.nearest(RequestKind("a", "x"), 20, 64, now=0.0) == 0


def test_centres_are_learnt_anew_after_so_long() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    clusters = Clusters(state)
    clusters.nearest(RequestKind("a", "x"), 16, 64, now=0.0)
    assert clusters.nearest(RequestKind("a", "x"), 4096, 64, now=RECLUSTER_S - 0.1) == 0
    assert state[RequestKind("a", "x")].centres == [(4.0, 6.0)]
    assert clusters.nearest(RequestKind("a", "x"), 4096, 64, now=RECLUSTER_S) == 1
    assert state[RequestKind("a", "x")].centres == [(4.0, 6.0), (12.0, 6.0)]


def test_only_the_last_requests_are_remembered() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    clusters = Clusters(state)
    for _ in range(WINDOW_REQUESTS):
        clusters.nearest(RequestKind("a", "x"), 16, 64, now=0.0)
    for _ in range(WINDOW_REQUESTS):
        clusters.nearest(RequestKind("a", "x"), 4096, 64, now=0.0)
    assert state[RequestKind("a", "x")].window == [(24, 12)] * WINDOW_REQUESTS


def test_lines_learn_apart() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    clusters = Clusters(state)
    clusters.nearest(RequestKind("a", "x"), 16, 64, now=0.0)
    clusters.nearest(RequestKind("a", "y"), 4096, 64, now=0.0)
    assert {line: learnt.centres for line, learnt in state.items()} == {
        RequestKind("a", "x"): [(4.0, 6.0)],
        RequestKind("a", "y"): [(12.0, 6.0)],
    }


def test_the_lines_heard_of_longest_ago_are_forgotten_first() -> None:
    state: dict[RequestKind, LengthClusters] = {}
    clusters = Clusters(state)
    for number in [*range(MAX_LINES), 0, MAX_LINES]:
        clusters.nearest(RequestKind("a", str(number)), 16, 64, now=0.0)
    assert len(state) == MAX_LINES
    assert RequestKind("a", "0") in state
    assert RequestKind("a", "1") not in state
