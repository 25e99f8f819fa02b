"""Seconds to move the KV of requests to another node, and to compute it again there; by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest

from shared.estimator.batching import PRIOR_KV_BYTES_PER_S
from shared.estimator.hand_over import PRIOR_NETWORK_BYTES_PER_S, HandOverCost, hand_over_cost, network_s
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost

COST = StepCost(step_s=0.5, token_s=0.01, context_token_s=0.001, attended_token_s=0.0001)
RATE = ModelRate("m", COST, kv_tokens=0, kv_token_bytes=1_000, load_s=0.0, kv_format="x")
GIVER = NodeState("n0", "m", kv_bytes_per_s=10e3, rates=[RATE])
TAKER = NodeState("n1", "m", kv_bytes_per_s=20e3, network_bytes_per_s=5e3, rates=[RATE])


def told(node: NodeState, **fields: Any) -> NodeState:
    return msgspec.structs.replace(node, **fields)


def test_a_move_goes_out_over_the_network_and_in() -> None:
    """20 tokens of 1 kB: 2 s out, 4 s over, 1 s in."""
    assert hand_over_cost(GIVER, TAKER, "m", 20, 1).move_s == pytest.approx(2.0 + 4.0 + 1.0)


@pytest.mark.parametrize(("giver_per_s", "over_s"), [(0.0, 4.0), (8e3, 4.0), (2e3, 10.0)])
def test_the_slower_network_of_both_says_how_long_it_takes(giver_per_s: float, over_s: float) -> None:
    """20 kB at the taker's 5 kB/s, unless the giver's network is slower; what was not measured is taken to be fast."""
    giver = told(GIVER, network_bytes_per_s=giver_per_s)
    assert network_s(giver, TAKER, 20e3) == pytest.approx(over_s)
    assert hand_over_cost(giver, TAKER, "m", 20, 1).move_s == pytest.approx(2.0 + over_s + 1.0)


def test_computing_again_is_a_prompt_of_as_many_tokens_for_each_request() -> None:
    """20 rows at once are 20 x 0.01 + 20 x 0.001 + 210 x 0.0001; two of 10 attend to 55 each. Nobody pays the step."""
    assert hand_over_cost(GIVER, TAKER, "m", 20, 1).recompute_s == pytest.approx(0.2 + 0.02 + 0.021)
    assert hand_over_cost(GIVER, TAKER, "m", 20, 2).recompute_s == pytest.approx(0.2 + 0.02 + 0.011)


def test_the_shorter_way_is_taken_and_both_begin_alike() -> None:
    assert HandOverCost(1.0, 1.0).moves_kv
    assert not HandOverCost(1.01, 1.0).moves_kv
    assert (HandOverCost(1.01, 1.0).least_s, HandOverCost(0.5, 1.0).least_s) == (1.0, 0.5)


def test_what_has_not_been_measured_is_assumed() -> None:
    bare = told(TAKER, kv_bytes_per_s=0.0, network_bytes_per_s=0.0)
    expected_s = 20e3 / 10e3 + 20e3 / PRIOR_NETWORK_BYTES_PER_S + 20e3 / PRIOR_KV_BYTES_PER_S
    assert hand_over_cost(GIVER, bare, "m", 20, 1).move_s == pytest.approx(expected_s)
    assert network_s(None, bare, 3e9) == 3e9 / PRIOR_NETWORK_BYTES_PER_S
    gone_s = hand_over_cost(None, TAKER, "m", 20, 1).move_s
    assert gone_s == pytest.approx(1.0 + 4.0 + 1.0), "of a giver that is not known: as the taker"


@pytest.mark.parametrize(
    ("giver_bytes", "taker_bytes", "moves"),
    [(None, None, True), (20_000, 10_000, True), (19_999, 10_000, False), (20_000, 9_999, False), (20_000, 0, False)],
)
def test_it_needs_room_for_all_that_leaves_and_for_each_that_comes(
    giver_bytes: int | None, taker_bytes: int | None, *, moves: bool
) -> None:
    """Two requests of 10 tokens: the giver keeps them until they are fetched; the taker takes one after the other."""
    giver, taker = told(GIVER, max_image_bytes=giver_bytes), told(TAKER, max_image_bytes=taker_bytes)
    assert (hand_over_cost(giver, taker, "m", 20, 2).move_s < inf) is moves


def test_blocks_that_are_cut_otherwise_are_computed_again() -> None:
    other = told(TAKER, rates=[replace(RATE, kv_format="y")])
    cost = hand_over_cost(GIVER, other, "m", 20, 1)
    assert (cost.move_s, cost.moves_kv) == (inf, False)
    assert cost.least_s == cost.recompute_s


def test_of_a_model_of_which_nothing_is_known_kv_moves() -> None:
    """Neither its size nor what its tokens cost."""
    cost = hand_over_cost(told(GIVER, rates=[]), told(TAKER, rates=[]), "m", 20, 1)
    assert (cost.move_s, cost.recompute_s, cost.moves_kv) == (0.0, 0.0, True)
