"""Which nodes take a request in which phase, and when changing the node is worth it; by hand."""

from __future__ import annotations

import msgspec
import pytest

from shared.estimator.phases import decoded_elsewhere, is_worth_moving, takes_phase, with_hand_overs
from shared.messages.nodes.nodes import NodeState, Phase, Phases
from shared.messages.nodes.step_cost import ModelRate, StepCost


def node(
    name: str, phases: Phases = "both", model: str = "m", *, kv_format: str = "", is_loading: bool = False
) -> NodeState:
    rates = [ModelRate(model, StepCost(0.5, 0.01, 0.0), 0, 1_000, 0.0, kv_format=kv_format)] if kv_format else []
    return NodeState(name, model, 9.0 if is_loading else 0.0, phases=phases, rates=rates)


def takers(phase: Phase, *nodes: NodeState, needs: str = "") -> list[str]:
    return [one.node for one in nodes if takes_phase(one, phase, "m", needs, nodes)]


PREFILLS, DECODES, BOTH = node("p", "prefill"), node("d", "decode"), node("b")


def test_each_phase_goes_to_those_that_serve_it() -> None:
    assert takers("prefill", PREFILLS, DECODES, BOTH) == ["p", "b"]
    assert takers("decode", PREFILLS, DECODES, BOTH) == ["d", "b"]


def test_where_nobody_with_the_model_serves_a_phase_all_that_have_it_do() -> None:
    assert takers("decode", PREFILLS) == ["p"]
    assert takers("prefill", DECODES) == ["d"]
    elsewhere = node("d", "decode", "other")
    assert takers("decode", PREFILLS, elsewhere) == ["p", "d"], "the one at once, the other when it has loaded it"
    assert takers("prefill", node("p", "prefill", is_loading=True), DECODES) == ["p", "d"]


def test_a_node_that_lacks_what_a_request_needs_serves_none_of_its_phases() -> None:
    lacking = msgspec.structs.replace(PREFILLS, lacks=["beams"])
    assert takers("prefill", lacking, DECODES, needs="beams") == ["p", "d"]
    assert takers("prefill", lacking, DECODES) == ["p"]


def test_models_that_others_decode_with_the_same_blocks() -> None:
    giver = node("p", "prefill", kv_format="x")
    assert decoded_elsewhere(giver, [giver, node("d", "decode", kv_format="x"), node("e", "both", "n")]) == ["m", "n"]
    assert decoded_elsewhere(giver, [giver, node("d", "decode", kv_format="y")]) == []
    assert decoded_elsewhere(giver, [giver, node("q", "prefill"), node("d", "decode", is_loading=True)]) == []
    assert decoded_elsewhere(node("b"), [DECODES]) == []
    assert decoded_elsewhere(DECODES, [DECODES, BOTH]) == []


def test_what_a_node_hands_over_hangs_on_the_others() -> None:
    giver, taker = node("p", "prefill", kv_format="x"), node("d", "decode", kv_format="x")
    told = with_hand_overs([giver, taker], {})
    assert [one.hands_over for one in told] == [["m"], []]
    assert with_hand_overs(told, {}) == told
    assert [one.hands_over for one in with_hand_overs(told[:1], {})] == [[]], "the other one has gone"
    assert [one.hands_over for one in with_hand_overs(told, {"d": "n"})] == [[], []], "it is to load another model"


@pytest.mark.parametrize(
    ("kv_tokens", "rest_tokens", "is_worth"), [(20, 5, False), (20, 6, True), (1, 1, False), (1, 2, True)]
)
def test_a_short_rest_ends_where_it_is(kv_tokens: int, rest_tokens: int, *, is_worth: bool) -> None:
    """20 tokens of 1 kB at 20 kB/s: 1 s out, 1 s over, 1 s in, so six steps of half a second."""
    one = msgspec.structs.replace(node("p", kv_format="x"), kv_bytes_per_s=20e3, network_bytes_per_s=20e3)
    assert is_worth_moving(one, "m", kv_tokens, rest_tokens) == is_worth


def test_kv_for_which_there_is_no_room_does_not_move() -> None:
    assert not is_worth_moving(msgspec.structs.replace(node("p", kv_format="x"), max_image_bytes=9_999), "m", 10, 999)
