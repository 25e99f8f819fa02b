"""Requests that not every engine can do go to nodes that can, as long as there are any."""

from __future__ import annotations

import msgspec

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.plans.take_over import TakeOvers
from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.interning import Interning
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.messages.nodes.placement import GroupLoad
from shared.messages.requests.payload import BEAM_SEARCH, Sampling
from shared.messages.requests.requests import EvictedRequest, Submit
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, make_state, orders, place

NOW = 100.0
SLO = Slo("interactive", deadline_s=20.0)


def two_nodes(*, lacking: tuple[str, ...] = ("n0",)) -> State:
    """Both have the model; of ``lacking`` ones, the engine has no beam search."""
    state = make_state(n0="a", n1="a")
    for name in lacking:
        node = state.nodes[name]
        node.known = msgspec.structs.replace(node.known, lacks=[BEAM_SEARCH])
    return state


def beams(state: State, gid: str) -> Group:
    group = make_group(state, gid)
    group.key = GroupKey(needs=BEAM_SEARCH)
    return group


def submit(name: str, needs: str) -> Submit:
    return Submit(request_id=name, gateway="gw", model="a", slo=SLO, prompt_tokens=8, max_tokens=10, needs=needs)


def _interned(message: Submit) -> Request:
    return Interning().request(message, NOW)


def test_what_a_request_needs_is_told_by_how_it_is_drawn() -> None:
    assert Sampling(max_tokens=1, is_beam=True).needs == BEAM_SEARCH
    assert Sampling(max_tokens=1, num_candidates=3).needs == ""


def test_they_begin_and_wait_where_that_can_be_done() -> None:
    state = two_nodes()
    load = GroupLoad(group="", model="a", deadline_s=NOW + 20.0, num_waiting=1, mean_output_tokens=10.0)
    seats = ImmediateStarts(state)
    assert seats.best(load, SLO) is state.nodes["n0"]
    assert seats.best(msgspec.structs.replace(load, needs=BEAM_SEARCH), SLO) is state.nodes["n1"]
    assert make_queues(state).place(beams(state, "g0"), NOW) is state.nodes["n1"]
    assert make_queues(state).place(make_group(state, "g1"), NOW) is state.nodes["n0"]


def test_where_none_of_those_with_the_model_can_the_plan_has_to_find_one() -> None:
    state = two_nodes(lacking=("n0", "n1"))
    assert make_queues(state).place(beams(state, "g0"), NOW) is None


def test_they_share_no_group_with_others_neither_at_first_nor_when_they_come_back() -> None:
    state = two_nodes()
    groups = RequestGroups(state, OPTIONS, {})
    joined = {}
    for name, needs in (("plain", ""), ("beam", BEAM_SEARCH), ("again", BEAM_SEARCH)):
        message = submit(name, needs)
        request = state.requests[name] = _interned(message)
        joined[name] = groups.join(request, NOW)
        assert groups.of_newcomer(message, NOW).needs == needs
        assert groups.newcomer(message, NOW).needs == needs
    assert joined["again"] is joined["beam"] is not joined["plain"]
    assert groups.load(joined["beam"], NOW).needs == BEAM_SEARCH
    beam = state.requests["beam"]
    groups.leave(beam)
    back = groups.put_back(beam, joined["beam"], EvictedRequest("beam", 0, output_tokens=2, kv_tokens=4, kv_at="n1"))
    assert back.needs == BEAM_SEARCH


def test_a_node_that_has_room_takes_over_what_it_can_do() -> None:
    state = two_nodes()
    groups = RequestGroups(state, OPTIONS, {})
    request = state.requests["seen"] = _interned(submit("seen", ""))
    groups.join(request, NOW)
    groups.close(groups.leave(request))
    beams(state, "waits")
    make_group(state, "begun", waiting=0, running=1)
    place(state, "n1", "begun", "waits")
    state.waiting_at["n1"] = None
    taking = TakeOvers(state, groups, VirtualQueues(state, groups, OPTIONS))
    taking.move_waiting(["n0"], NOW)
    assert orders(state) == {"n0": [], "n1": ["begun", "waits"]}
    state.groups["waits"].key = GroupKey()
    taking.move_waiting(["n0"], NOW)
    assert orders(state) == {"n0": ["waits"], "n1": ["begun"]}
