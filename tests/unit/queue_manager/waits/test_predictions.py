"""What a queue tells those who wait, and those who come."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.kept_batch import KeptBatch
from services.queue_manager.state.node import Node, Unread
from services.queue_manager.state.state import State
from services.queue_manager.waits.elsewhere import NOWHERE_ELSE
from services.queue_manager.waits.predictions import FORECAST_GROUPS, Predictions, Prospect
from shared.config.services.queue import QueueOptions
from shared.estimator.wait import NEVER, NOW, Wait
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, place

NOTHING_SEEN = KeptBatch()
RATE = ModelRate("a", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)


def made(*rates: ModelRate) -> State:
    """A node with the model ``a`` and two places, of which these rates are known."""
    return State(nodes={"n0": Node("n0", "1", NodeState("n0", "a", max_num_seqs=2, rates=list(rates)))})


def predictions_of(state: State) -> Predictions:
    return Predictions(state, RequestGroups(state, OPTIONS, {}), make_queues(state), OPTIONS)


def newcomer(model: str) -> Submit:
    slo = Slo("interactive", deadline_s=20.0)
    return Submit(request_id="new", gateway="gw", model=model, slo=slo, prompt_tokens=8, max_tokens=10)


# --- where a batch keeps headroom for the promises of those who run -------------------------------------------------


def waits(max_running: int | None, later_s: float = 3600.0, kept: KeptBatch = NOTHING_SEEN) -> dict[str, float]:
    """Of the first member of each group, behind four who run where there are eight places; ``later`` is due then."""
    rate = ModelRate("a", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=1, load_s=0.0)
    known = NodeState("n0", "a", max_num_seqs=8, rates=[rate])
    state = State(nodes={"n0": Node("n0", "1", known, max_running=max_running, kept=kept)})
    make_group(state, "runs", waiting=0, running=4)
    make_group(state, "soon", due_s=0.0, kind="soon")
    make_group(state, "later", due_s=later_s, kind="later")
    place(state, "n0", "runs", "soon", "later")
    predictions = Predictions(state, RequestGroups(state, OPTIONS, {}), make_queues(state), OPTIONS)
    outlooks = predictions.outlooks(state.nodes["n0"], NOWHERE_ELSE, 0.0)
    return {group.gid: outlook.place_and_prompt(0)[0].mean_s for group, outlook in outlooks}


def test_where_there_is_room_everybody_begins_at_once() -> None:
    assert waits(None) == {"soon": 0.0, "later": 0.0}
    assert waits(8) == {"soon": 0.0, "later": 0.0}


def test_who_is_patient_waits_for_a_place_in_the_batch_that_leaves_headroom() -> None:
    bounded = waits(4)
    assert bounded["soon"] == 0.0, "it has no time"
    assert bounded["later"] > 0.0


def test_it_waits_no_longer_than_its_time_lasts() -> None:
    """With half the places the batch has half the throughput, which is what time is reckoned with: it stays patient."""
    assert waits(4, later_s=1e-3)["later"] == waits(4)["later"]
    assert 0.0 < waits(3, later_s=1e-3)["later"] < 0.01 < waits(3)["later"]
    assert waits(4, later_s=0.0)["later"] == 0.0


def test_that_batch_is_as_large_as_it_was_beside_such_a_limit() -> None:
    """For 30 s, with 16 / 3 that ran, beside a limit of 4: (10 * 4 + 30 * 16 / 3) / 40 = 5."""
    assert waits(4, kept=KeptBatch("a", 4, seconds=30.0, running_s=160.0)) == waits(5)
    assert 0.0 < waits(5)["later"] < waits(4)["later"]


def test_a_request_that_begins_at_once_waits_for_no_headroom_though_it_has_time() -> None:
    """Four run where there are eight places, and the batch is to have no more: half a step is left, and one is its own.

    It is found a place at the node, beside the limit: that is for requests which came to wait.
    """
    known = NodeState("n0", "a", max_num_seqs=8, rates=[RATE])
    state = State(nodes={"n0": Node("n0", "1", known, max_running=4)})
    make_group(state, "runs", waiting=0, running=4)
    make_group(state, "later", due_s=3600.0, kind="later", waiting=20)
    place(state, "n0", "runs", "later")
    state.nodes["n0"].patient = ["later"]
    prospect = predictions_of(state).of_newcomer(newcomer("a"), 0.0)
    assert prospect is not None
    assert prospect.first_token.mean_s == pytest.approx(0.05 + 0.1)


# --- who is still ahead ---------------------------------------------------------------------------------------------


def test_who_gives_way_by_plan_counts_as_running_until_its_node_is_told() -> None:
    """Two fill the batch behind one who waits: it has a place when they are gone, or at once when they give way."""
    state = made(RATE)
    make_group(state, "waits")
    make_group(state, "runs", waiting=0, running=2)
    place(state, "n0", "waits", "runs")
    node, predictions = state.nodes["n0"], predictions_of(state)
    running = predictions.of_node(node, 0.0)["waits"]
    assert running.place_and_prompt(0)[0] != NOW
    node.yielding = ["runs"]
    assert predictions.of_node(node, 0.0)["waits"] == running
    node.told_yielding = ["runs"]
    assert predictions.of_node(node, 0.0)["waits"].place_and_prompt(0)[0] == NOW


def test_prompts_that_its_node_has_yet_to_compute_come_before_those_who_wait() -> None:
    state = made(RATE)
    make_group(state, "waits")
    place(state, "n0", "waits")
    node, predictions = state.nodes["n0"], predictions_of(state)
    assert predictions.of_node(node, 0.0)["waits"].start.mean_s == pytest.approx(0.1)
    node.unread = Unread(until_s=3.0, share=0.5)
    assert predictions.of_node(node, 1.0)["waits"].start.mean_s == pytest.approx(2.0 + 0.1)
    assert [outlook.wait_at(0).mean_s for _, outlook in predictions.outlooks(node, NOWHERE_ELSE, 1.0)] == [
        pytest.approx(2.0 + 0.1)
    ]


def test_groups_behind_those_that_are_forecast_one_by_one_count_as_much_as_these() -> None:
    def first_token_s(num_groups: int) -> float:
        state = made(RATE)
        names = [f"g{number}" for number in range(num_groups)]
        queues = make_queues(state)
        for name in names:
            queues.enter(make_group(state, name), state.nodes["n0"], 0.0)
        prospect = predictions_of(state).of_newcomer(newcomer("a"), 0.0)
        assert prospect is not None
        return prospect.first_token.mean_s

    a_group_s = first_token_s(FORECAST_GROUPS) - first_token_s(FORECAST_GROUPS - 1)
    assert a_group_s > 0.0
    assert first_token_s(2 * FORECAST_GROUPS) - first_token_s(FORECAST_GROUPS) == pytest.approx(
        FORECAST_GROUPS * a_group_s
    )


def test_who_comes_is_predicted_before_those_who_will_give_way_to_it() -> None:
    """By rule it stands behind them until the next plan; who refuses by that refuses who would be in time."""
    state = made(RATE)
    make_group(state, "later", kind="batch", due_s=3600.0, waiting=8)
    make_group(state, "evicted", kind="batch", due_s=3600.0, waiting=8, kv_at="n0")
    place(state, "n0", "later", "evicted")
    urgent = predictions_of(state).of_newcomer(newcomer("a"), 0.0)
    without_plans = QueueOptions(policy="fcfs")
    last = Predictions(
        state, RequestGroups(state, without_plans, {}), make_queues(state, without_plans), without_plans
    ).of_newcomer(newcomer("a"), 0.0)
    assert urgent is not None
    assert last is not None
    assert urgent.first_token.mean_s == pytest.approx(0.1), "one step: it begins at once"
    assert last.first_token.mean_s > 1.0


def test_so_are_those_who_came_shortly_before_it_and_those_who_wait_are_told_so() -> None:
    """Two urgent groups have come since the last plan, behind a group that has begun: a second each, ten tokens."""
    state = made(RATE)
    make_group(state, "later", kind="batch", due_s=3600.0, waiting=8, kv_at="n0").is_planned = True
    for gid in ("soon0", "soon1"):
        make_group(state, gid, waiting=2, kind=gid, due_s=10.0)
    place(state, "n0", "later", "soon0", "soon1")
    predictions = predictions_of(state)
    urgent = predictions.of_newcomer(newcomer("a"), 0.0)
    told = {
        group.gid: outlook.wait_at(0).mean_s
        for group, outlook in predictions.outlooks(state.nodes["n0"], NOWHERE_ELSE, 0.0)
    }
    assert list(told) == ["later", "soon0", "soon1"], "as they stand"
    assert told == pytest.approx({"soon0": 0.1, "soon1": 1.1, "later": 2.1})
    assert urgent is not None
    assert urgent.first_token.mean_s == pytest.approx(2.1), (
        "behind those two: a plan has it before the group that has begun"
    )


# --- while a node loads ---------------------------------------------------------------------------------------------


def load_until(state: State, ready_at_s: float) -> None:
    """The node has begun to load the model that it is known to hold."""
    node = state.nodes["n0"]
    node.known = msgspec.structs.replace(node.known, ready_at_s=ready_at_s)


def test_who_comes_waits_for_the_rest_of_the_load() -> None:
    state = made(RATE)
    load_until(state, 5.0)
    predictions = predictions_of(state)
    for now, rest_s in ((1.0, 4.0), (4.5, 0.5), (6.0, 0.0)):
        prospect = predictions.of_newcomer(newcomer("a"), now)
        assert prospect is not None
        assert prospect.first_token.mean_s == pytest.approx(rest_s + 0.1)


def test_of_another_model_for_its_own_load_as_well() -> None:
    state = made(RATE, replace(RATE, model="b", load_s=7.0))
    load_until(state, 5.0)
    prospect = predictions_of(state).of_newcomer(newcomer("b"), 1.0)
    assert prospect is not None
    assert prospect.first_token.mean_s == pytest.approx(4.0 + 7.0 + 0.1)


def test_who_waits_is_told_of_the_rest_of_the_load() -> None:
    state = made(RATE)
    make_group(state, "waits")
    place(state, "n0", "waits")
    load_until(state, 5.0)
    node, predictions = state.nodes["n0"], predictions_of(state)
    assert predictions.of_node(node, 1.0)["waits"].start.mean_s == pytest.approx(4.0 + 0.1)
    assert predictions.of_node(node, 1.0)["waits"].place_and_prompt(0)[0] != NOW
    assert [outlook.wait_at(0).mean_s for _, outlook in predictions.outlooks(node, NOWHERE_ELSE, 1.0)] == [
        pytest.approx(4.0 + 0.1)
    ]


# --- what is learnt -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "known", "is_learnt"),
    [
        ("", "a", True),
        ("", "", False),
        ("b", "a", False),
        ("b", "ab", True),
    ],
)
def test_a_prospect_is_learnt_where_the_rates_of_all_models_before_it_are_known(
    ahead: str, known: str, is_learnt: bool
) -> None:
    state = made(*(replace(RATE, model=model) for model in known))
    for model in ahead:
        make_group(state, model, model=model, due_s=1.0)
        place(state, "n0", model)
    prospect = predictions_of(state).of_newcomer(newcomer("a"), 0.0)
    assert prospect is not None
    assert prospect.is_learnt == is_learnt


def test_how_far_the_places_by_rule_and_by_plan_are_apart_is_part_of_the_spread() -> None:
    near, far = Prospect(True, Wait(2.0, 3.0), Wait(4.0, 0.0)), Prospect(False, Wait(10.0, 0.0), Wait(12.0, 0.0))
    assert near.unless(far) == Prospect(False, Wait(2.0, 5.0), Wait(4.0, 4.0))
    assert near.unless(Prospect(True, NEVER, NEVER)) == near
