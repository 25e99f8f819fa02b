"""What waits may start sooner at another node: where its model is served, and where a node is done before."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.state import State
from services.queue_manager.waits.elsewhere import (
    Elsewhere,
    EvenStarts,
    WorkStealing,
    even_starts,
    work_stealing,
)
from services.queue_manager.waits.group_wait import PLAN_SHARE, GroupWait, Served, Slack
from services.queue_manager.waits.predictions import Predictions
from shared.config.services.corrections import Correction, PredictionOptions
from shared.config.services.policies import PolicyName
from shared.config.services.queue import QueueOptions
from shared.estimator.wait import NEVER, Wait
from shared.messages.nodes.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import make_group, make_queues, make_state, place


def hot(state: State, gid: str, drain_s: float, node: str, rank: float = 0.0) -> Group:
    """A group of model ``hot`` with two members that stands at a node, where its work takes so long."""
    made = make_group(state, gid, model="hot", waiting=2, rank=rank)
    made.drain_s = drain_s
    place(state, node, gid)
    state.nodes[node].drain_s += drain_s
    return made


def own(mean_s: float) -> GroupWait:
    """A group whose queue comes to it then; nothing is known of it but the work before it."""
    return GroupWait(Served(None, [], mean_s), None, Slack(0.0, 0.0, 1.0), lambda wait: wait)


def even_only(state: State) -> Elsewhere:
    return Elsewhere(even_starts(state), lambda _: None)


# --- served elsewhere -----------------------------------------------------------------------------------------------


def test_groups_behind_a_load_begin_evenly_while_nodes_of_their_model_work_off_all() -> None:
    """Two nodes serve it, with 10 and 20 s of work; 6 s stand behind a load: all is done in 18 s, by four members."""
    state = make_state(hot1="hot", hot2="hot", cold="cold")
    hot(state, "here1", 10.0, "hot1")
    hot(state, "here2", 20.0, "hot2")
    hot(state, "second", 4.0, "cold", rank=2.0)
    hot(state, "first", 2.0, "cold", rank=1.0)
    found = even_starts(state)
    assert found == {"first": EvenStarts(2.25, 4.5, 18.0), "second": EvenStarts(11.25, 4.5, 18.0)}
    assert [found["first"].start_s(position) for position in (0, 1)] == [2.25, 6.75]


@pytest.mark.parametrize("served", ["another model", "loading", "lacks"])
def test_what_no_node_can_serve_waits_for_its_queue(served: str) -> None:
    state = make_state(n1="other" if served == "another model" else "hot", cold="cold")
    known = state.nodes["n1"].known
    if served == "loading":
        state.nodes["n1"].known = msgspec.structs.replace(known, ready_at_s=9.0)
    group = hot(state, "g", 2.0, "cold")
    if served == "lacks":
        state.nodes["n1"].known = msgspec.structs.replace(known, lacks=["beams"])
        group.key = group.key._replace(needs="beams")
    assert even_starts(state) == {}


def test_a_group_has_the_sooner_of_both() -> None:
    """Half of how far they are apart adds to its spread: a plan will choose one."""
    state = make_state(hot1="hot", cold="cold")
    group = hot(state, "g", 8.0, "cold")  # its two members begin at 2 and 6 s
    late, soon = even_only(state).sooner(group, own(30.0)), even_only(state).sooner(group, own(4.0))
    place_s = own(30.0).place_and_prompt(0)[0]
    assert late.wait_at(0) == Wait(2.0, hypot(place_s.std_s * 2.0 / 30.0, PLAN_SHARE * 28.0))
    assert late.wait_at(1) == Wait(6.0, hypot(place_s.std_s * 6.0 / 30.0, PLAN_SHARE * 24.0))
    assert soon.wait_at(0).mean_s == 2.0
    assert soon.wait_at(1) == own(4.0).wait_at(1), "its own queue comes to it before"


def test_the_spread_of_its_place_is_widened_by_what_was_learnt() -> None:
    state = make_state(hot1="hot", cold="cold")
    group = hot(state, "g", 8.0, "cold")
    wide = replace(own(30.0), widened=lambda wait: Wait(wait.mean_s, 2 * wait.std_s))
    plain = even_only(state).sooner(group, own(30.0)).wait_at(0)
    assert even_only(state).sooner(group, wide).wait_at(0) == Wait(2.0, 2 * plain.std_s)


def test_a_newcomer_begins_behind_all_of_them() -> None:
    state = make_state(hot1="hot", cold="cold")
    group, other = hot(state, "g", 8.0, "cold"), make_group(state, "other", model="hot")
    place(state, "hot1", "other")
    found = even_only(state)
    assert found.newcomer(group, Wait(30.0, 1.5)) == Wait(8.0, hypot(0.4, PLAN_SHARE * 22.0))
    assert found.newcomer(group, Wait(5.0, 1.0)) == Wait(5.0, 1.0)
    assert found.newcomer(other, Wait(30.0, 1.0)) == Wait(30.0, 1.0), "it stands where its model is"


# --- work stealing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_s", "start_s"),
    [
        (0.0, 0.0),
        (3.0, 3.0),
        (6.0, (3.0 + 6.0 + 6.0) / 3),  # the first is done at 3 s and helps the others
        (9.0, (3.0 + 6.0 + 9.0) / 3),
        (30.0, (3.0 + 6.0 + 30.0) / 3),  # all are done at once
        (60.0, (3.0 + 6.0 + 60.0) / 3),  # newcomers hold the node up
    ],
)
def test_nodes_that_are_done_help_those_that_are_not(own_s: float, start_s: float) -> None:
    assert WorkStealing([3.0, 6.0, 30.0], drain_s=30.0).start_s(own_s) == pytest.approx(start_s)


def test_nodes_that_are_done_later_than_a_node_do_not_help_it() -> None:
    assert WorkStealing([3.0, 6.0, 30.0], drain_s=3.0).start_s(10.0) == 10.0
    assert WorkStealing([6.0, 6.0], drain_s=6.0).start_s(10.0) == 10.0


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=6), st.data())
def test_help_brings_all_nodes_to_one_end_and_makes_none_wait(drains: list[float], data: st.DataObject) -> None:
    """The work of equal nodes is done when their mean is; and never is a start later than without help."""
    done_s = sorted(drains)
    assert WorkStealing(done_s, done_s[-1]).start_s(done_s[-1]) == pytest.approx(sum(drains) / len(drains))
    drain_s = data.draw(st.sampled_from(drains))
    times = [WorkStealing(done_s, drain_s).start_s(share * drain_s) for share in (0.0, 0.25, 0.5, 1.0)]
    assert times == sorted(times)
    assert all(one <= share * drain_s + 1e-9 for one, share in zip(times, (0.0, 0.25, 0.5, 1.0), strict=True))


def test_a_node_with_another_model_helps_when_it_has_loaded_theirs() -> None:
    state = make_state(hot1="hot", cold="cold", broken="cold")
    rate = ModelRate("hot", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=2.0)
    state.nodes["cold"].known = msgspec.structs.replace(state.nodes["cold"].known, rates=[rate])
    state.nodes["broken"].known = msgspec.structs.replace(state.nodes["broken"].known, broken_models=["hot"])
    group = hot(state, "g", 20.0, "hot1")
    state.nodes["cold"].drain_s = 4.0
    assert work_stealing(state, 0.0)(group) == WorkStealing([6.0, 20.0], 20.0)
    told = Elsewhere({}, work_stealing(state, 0.0))
    assert told.sooner(group, own(20.0)).wait_at(0).mean_s == 6.0 + 14.0 / 2
    assert told.newcomer(group, Wait(20.0, 0.0)).mean_s == 13.0


def test_what_never_ends_where_it_stands_is_told_so() -> None:
    """The node cannot serve the model any more; a plan that will move the group is not foreseen."""
    state = make_state(hot1="hot", cold="cold")
    group = hot(state, "g", 8.0, "cold")
    state.nodes["cold"].known = msgspec.structs.replace(state.nodes["cold"].known, broken_models=["hot"])
    told = Elsewhere(even_starts(state), work_stealing(state, 0.0))
    assert told.newcomer(group, NEVER) == NEVER
    assert told.newcomer(group, Wait(30.0, 0.0)).mean_s == 8.0, "the other node serves it"


def test_a_group_without_a_node_waits_for_one() -> None:
    state = make_state(hot1="hot")
    assert work_stealing(state, 0.0)(make_group(state, "nowhere", model="hot")) is None


# --- switches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "wait_s"),
    [
        ((), 2.0 + 2.0 / 2),
        ((Correction.WORK_STEALING,), 4.0),  # the first of two that begin evenly within 16 s
        ((Correction.SERVED_ELSEWHERE,), 2.0 + 28.0 / 2),
        ((Correction.WORK_STEALING, Correction.SERVED_ELSEWHERE), 30.0),
    ],
)
def test_each_can_be_left_out(without: tuple[Correction, ...], wait_s: float) -> None:
    """14 s of ``hot`` stand at a node with another model, and a node that serves it has no work but 2 s of its own."""
    state = make_state(hot1="hot", cold="cold")
    hot(state, "here", 2.0, "hot1")
    group = hot(state, "g", 14.0, "cold")
    rate = ModelRate("hot", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=90.0)
    state.nodes["cold"].known = msgspec.structs.replace(state.nodes["cold"].known, rates=[rate])
    options = QueueOptions(predictions=PredictionOptions(without=without))
    predictions = Predictions(state, RequestGroups(state, options, {}), make_queues(state, options), options)
    assert predictions.elsewhere(0.0).sooner(group, own(30.0)).wait_at(0).mean_s == pytest.approx(wait_s)


@pytest.mark.parametrize(("policy", "wait_s"), [("qlm", 3.0), ("edf", 30.0)])
def test_other_policies_move_nothing(policy: PolicyName, wait_s: float) -> None:
    """By QLM the second of two that begin evenly within 8 s would begin at 6, and an idle node does half of that."""
    state = make_state(hot1="hot", cold="cold")
    group = hot(state, "g", 8.0, "cold")
    options = QueueOptions(policy=policy)
    predictions = Predictions(state, RequestGroups(state, options, {}), make_queues(state, options), options)
    assert predictions.elsewhere(0.0).sooner(group, own(30.0)).wait_at(1).mean_s == pytest.approx(wait_s)
