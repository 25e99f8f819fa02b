"""What stands behind a load of its model is told when those nodes have time for it that serve the model already."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.state import State
from services.queue_manager.waits.group_wait import PLAN_SHARE, GroupWait, Served, Slack
from services.queue_manager.waits.predictions import Predictions
from services.queue_manager.waits.served_elsewhere import NOTHING_ELSEWHERE, EvenStarts, served_elsewhere
from shared.config.corrections import Correction, PredictionOptions
from shared.config.queue import QueueOptions
from shared.estimator.wait import NOW, Wait
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, make_state, place


def behind(state: State, gid: str, drain_s: float, node: str = "cold", **group: float) -> Group:
    """A group of model ``hot`` with two members that stands at a node, where its work takes so long."""
    made = make_group(state, gid, model="hot", waiting=2, rank=group.get("rank", 0.0))
    made.drain_s = drain_s
    place(state, node, gid)
    state.nodes[node].drain_s += drain_s
    return made


def own(mean_s: float) -> GroupWait:
    """A group whose queue comes to it then; nothing is known of it but the work before it."""
    return GroupWait(Served(None, [], mean_s), None, Slack(0.0, 0.0, 1.0), lambda wait: wait)


def test_groups_behind_a_load_begin_evenly_while_nodes_of_their_model_work_off_all() -> None:
    """Two nodes serve it, with 10 and 20 s of work; 6 s stand behind a load: all is done in 18 s, by four members."""
    state = make_state(hot1="hot", hot2="hot", cold="cold")
    behind(state, "here1", 10.0, "hot1")
    behind(state, "here2", 20.0, "hot2")
    behind(state, "second", 4.0, rank=2.0)
    behind(state, "first", 2.0, rank=1.0)
    found = served_elsewhere(state)
    assert found.starts == {"first": EvenStarts(2.25, 4.5), "second": EvenStarts(11.25, 4.5)}
    assert [found.starts["first"].start_s(position) for position in (0, 1)] == [2.25, 6.75]
    assert found.ends_s == {"first": 18.0, "second": 18.0}


@pytest.mark.parametrize("served", ["another model", "loading"])
def test_what_no_node_serves_waits_for_its_queue(served: str) -> None:
    state = make_state(n1="other" if served == "another model" else "hot", cold="cold")
    if served == "loading":
        state.nodes["n1"].known = msgspec.structs.replace(state.nodes["n1"].known, ready_at_s=9.0)
    behind(state, "g", 2.0)
    assert served_elsewhere(state) == NOTHING_ELSEWHERE


def test_a_group_has_the_sooner_of_both() -> None:
    """Half of how far they are apart is its spread: a plan will choose one."""
    state = make_state(hot1="hot", cold="cold")
    group = behind(state, "g", 8.0)  # its two members begin at 2 and 6 s
    found = served_elsewhere(state)
    late, soon = found.sooner(group, own(30.0)), found.sooner(group, own(4.0))
    assert late.wait_at(0) == Wait(2.0, PLAN_SHARE * 28.0)
    assert late.wait_at(1) == Wait(6.0, PLAN_SHARE * 24.0)
    assert late.place_and_prompt(1) == (Wait(6.0, PLAN_SHARE * 24.0), NOW)
    assert soon.wait_at(0) == Wait(2.0, PLAN_SHARE * 2.0)
    assert soon.wait_at(1) == own(4.0).wait_at(1), "its own queue comes to it before"
    assert soon.place_and_prompt(1) == own(4.0).place_and_prompt(1)


def test_the_spread_is_widened_by_what_was_learnt() -> None:
    state = make_state(hot1="hot", cold="cold")
    group = behind(state, "g", 8.0)
    wide = replace(own(30.0), widened=lambda wait: Wait(wait.mean_s, 2 * wait.std_s))
    assert served_elsewhere(state).sooner(group, wide).wait_at(0) == Wait(2.0, 2 * PLAN_SHARE * 28.0)


def test_a_newcomer_begins_behind_all_of_them() -> None:
    state = make_state(hot1="hot", cold="cold")
    group, other = behind(state, "g", 8.0), make_group(state, "other", model="hot")
    place(state, "hot1", "other")
    found = served_elsewhere(state)
    assert found.newcomer(group, Wait(30.0, 1.0)) == Wait(8.0, PLAN_SHARE * 22.0)
    assert found.newcomer(group, Wait(5.0, 1.0)) == Wait(5.0, 1.0)
    assert found.newcomer(other, Wait(30.0, 1.0)) == Wait(30.0, 1.0), "it stands where its model is"


def test_without_the_correction_groups_wait_where_they_stand() -> None:
    state = make_state(hot1="hot", cold="cold")
    behind(state, "g", 8.0)
    without = QueueOptions(predictions=PredictionOptions(without=(Correction.SERVED_ELSEWHERE,)))
    assert predictions(state, OPTIONS).elsewhere() == served_elsewhere(state)
    assert predictions(state, without).elsewhere() == NOTHING_ELSEWHERE


def predictions(state: State, options: QueueOptions) -> Predictions:
    return Predictions(state, RequestGroups(state, options, {}), make_queues(state, options), options)
