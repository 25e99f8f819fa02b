"""Equal parts of requests are one object, also after a restart."""

from __future__ import annotations

import msgspec

from services.queue_manager.state.interning import MAX_SLOS, Interning
from services.queue_manager.state.state import State
from shared.messages.codec import decode, encode
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.made import LARGE, MadeGroups


def submit(request_id: str, deadline_s: float = 20.0) -> Submit:
    """As it comes off the wire: nothing is shared."""
    slo = Slo("custom", deadline_s=deadline_s)
    message = Submit(request_id=request_id, gateway="gw", model="a", slo=slo, prompt_tokens=8, max_tokens=100)
    received = decode(encode(message))
    assert isinstance(received, Submit)
    return received


def test_requests_share_names_and_promises() -> None:
    sharing = Interning()
    one, other = (sharing.request(submit(name), 5.0) for name in ("r0", "r1"))
    assert one.slo is other.slo
    assert one.gateway is other.gateway
    assert one.model is other.model
    assert one.tenant is other.tenant
    assert (one.request_id, one.arrival_s, one.prompt_tokens, one.max_tokens) == ("r0", 5.0, 8, 100)


def test_only_so_many_promises_are_remembered() -> None:
    sharing = Interning()
    for number in range(3 * MAX_SLOS):
        sharing.request(submit(f"r{number}", deadline_s=1.0 + number), 5.0)
    assert len(sharing._slos) <= MAX_SLOS


def test_a_restored_state_is_equal_and_shares_again() -> None:
    groups = MadeGroups(LARGE)
    for number in range(3):
        groups.add(f"r{number}")
    groups.pull(groups.state.requests["r0"], "n0", 1.0)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(groups.state), type=State)
    assert state.requests["r0"].slo is not state.requests["r1"].slo
    Interning().restore(state)
    assert state == groups.state
    assert list(state.requests) == list(groups.state.requests)
    requests, group = state.requests, state.groups["g0"]
    assert requests["r0"].slo is requests["r1"].slo
    assert all(request.group is group.gid for request in requests.values())
    assert [next(iter(members)) for members in (group.running, group.waiting)] == ["r0", "r1"]
    assert next(iter(group.running)) is next(iter(requests)) is requests["r0"].request_id
    assert next(iter(state.running["a"].members)) is requests["r0"].request_id
    assert (group.model, group.tenant) == (requests["r0"].model, requests["r0"].tenant)
    assert group.model is requests["r0"].model
    assert next(iter(state.groups)) is state.open_groups[group.key] is group.gid
    assert next(iter(state.open_groups)) is group.key
