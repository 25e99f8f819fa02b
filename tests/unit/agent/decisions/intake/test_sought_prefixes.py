"""A request whose prompt another node has cached: what the agent does before it begins, action by action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.agent.decisions.actions import (
    AgentAction,
    DiscardImage,
    FetchPrefix,
    GroupEntry,
    PrefixFetched,
    Publish,
    StopFetch,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.intake.sought_prefixes import MAX_SOUGHT, MIN_TOKENS
from gpu_node.engine.process.protocol.prefix_protocol import FindPrefix, PrefixFound
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, AbortRequests, ImageFile, RunAttempt
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.requests.pictures import Picture
from shared.messages.requests.requests import Abort, Enqueued, Evict, EvictedRequest
from tests.unit.agent.events import EPOCH, OPTIONS, attempt_of, loaded, payload_of, queue, step, taken

DOOR = KvDoor("http://n1:1", "secret")
SOURCE = PrefixSource("n1", DOOR, 200, "f", 1.5)
FILE = ImageFile("/proc/7/fd/9", 4096)


def agent(*, kv_format: str = "f", door: KvDoor | None = DOOR) -> AgentCore:
    one = AgentCore("n0", EPOCH, "cpu", OPTIONS, door=door)
    one.handle(loaded("a", kv_format=kv_format))
    one.handle(step(num_admittable=20))
    one.handle(queue(("g", "a", 20)))
    return one


def entry(name: str, source: PrefixSource | None = SOURCE, *, has_picture: bool = False) -> GroupEntry:
    enqueued = Enqueued(request_id=name, attempt=0, gateway="gw", prefix_at=source)
    payload = payload_of(name)
    if has_picture:
        payload = replace(payload, pictures=[Picture("0", 1, 1, 4, b"")])
    return GroupEntry(name.encode(), enqueued, payload)


def pulled(one: AgentCore, *entries: GroupEntry) -> list[AgentAction]:
    return one.handle(taken("g", len(entries) + 1, *entries))


FIND = Tell(FindPrefix("r", 0, "a", "", [1, 2]))
RUN = Tell(RunAttempt(payload_of("r")))


def test_it_is_fetched_behind_what_is_here_and_then_the_request_runs() -> None:
    one = agent()
    assert pulled(one, entry("r")) == [FIND]
    assert one.awaits_step, "an engine that says nothing hangs"
    assert one.handle(PrefixFound("r", 0, 16, 32)) == [FetchPrefix(payload_of("r"), SOURCE, 16)]
    assert not one.awaits_step, "it has nothing to do"
    assert one.handle(PrefixFetched(payload_of("r"), FILE, 0.5)) == [Tell(RunAttempt(payload_of("r"), prefix=FILE))]
    assert one.awaits_step


def test_where_nothing_comes_it_is_computed() -> None:
    one = agent()
    pulled(one, entry("r"))
    one.handle(PrefixFound("r", 0, 0, 0))
    assert one.handle(PrefixFetched(payload_of("r"), NO_IMAGE, 0.0)) == [RUN]


@pytest.mark.parametrize(("num_more", "fetches"), [(MIN_TOKENS - 1, False), (MIN_TOKENS, True)])
def test_what_is_here_by_now_is_not_fetched(num_more: int, fetches: bool) -> None:
    one = agent()
    pulled(one, entry("r"))
    actions = one.handle(PrefixFound("r", 0, 0, SOURCE.num_tokens - num_more))
    assert actions == ([FetchPrefix(payload_of("r"), SOURCE, 0)] if fetches else [RUN])


@pytest.mark.parametrize(
    "reason", ["no source", "itself", "another format", "no format", "no door", "a picture", "too many"]
)
def test_it_begins_at_once(reason: str) -> None:
    one = agent(
        kv_format={"another format": "g", "no format": ""}.get(reason, "f"), door=None if reason == "no door" else DOOR
    )
    source: PrefixSource | None = SOURCE
    if reason == "no source":
        source = None
    elif reason == "itself":
        source = PrefixSource("n0", DOOR, 200, "f", 1.5)
    elif reason == "no format":
        source = PrefixSource("n1", DOOR, 200, "", 1.5)
    elif reason == "too many":
        pulled(one, *(entry(str(number)) for number in range(MAX_SOUGHT)))
    (action,) = pulled(one, entry("r", source, has_picture=reason == "a picture"))
    assert isinstance(action, Tell)
    assert isinstance(action.command, RunAttempt)


def test_a_request_that_is_given_up_meanwhile_is_not_fetched_for() -> None:
    one = agent()
    pulled(one, entry("r"), entry("s"))
    one.handle(PrefixFound("r", 0, 0, 0))
    actions = one.handle(Abort(requests=[attempt_of("r"), attempt_of("s")]))
    assert actions[0] == Tell(AbortRequests(["r", "s"]))
    assert StopFetch([attempt_of("r"), attempt_of("s")]) in actions
    assert one.handle(PrefixFetched(payload_of("r"), FILE, 0.5)) == [DiscardImage(FILE)]
    assert one.handle(PrefixFound("s", 0, 0, 0)) == []
    assert pulled(one, *(entry(str(number)) for number in range(MAX_SOUGHT)))[-1] == Tell(
        FindPrefix(str(MAX_SOUGHT - 1), 0, "a", "", [1, 2])
    ), "nothing is kept of them"


def test_a_request_that_is_asked_for_elsewhere_is_given_back() -> None:
    one = agent()
    pulled(one, entry("r"))
    actions = one.handle(Evict(node="n0", epoch=EPOCH, requests=[attempt_of("r")]))
    (published,) = [action for action in actions if isinstance(action, Publish)]
    assert published.evicted == [EvictedRequest("r", 0, 0, 0, "n0")]
    assert StopFetch([attempt_of("r")]) in actions


def test_an_attempt_that_comes_again_is_fetched_for_once() -> None:
    """The engine answers what it was asked before it was given back, and then once more."""
    one = agent()
    pulled(one, entry("r"))
    one.handle(Evict(node="n0", epoch=EPOCH, requests=[attempt_of("r")]))
    assert pulled(one, entry("r")) == [FIND]
    assert one.handle(PrefixFound("r", 0, 16, 32)) == [FetchPrefix(payload_of("r"), SOURCE, 16)]
    assert one.handle(PrefixFound("r", 0, 0, 0)) == []
    assert one.handle(PrefixFetched(payload_of("r"), FILE, 0.5)) == [Tell(RunAttempt(payload_of("r"), prefix=FILE))]


def test_what_is_sought_for_wants_room_in_the_engine() -> None:
    """Five places: three requests that are on their way leave two for the next pull."""
    one = agent()
    one.handle(step(num_admittable=5))
    actions = one.handle(taken("g", 3, entry("r"), entry("s"), entry("t")))
    assert actions[-1].num_requests == 2  # type: ignore[union-attr]


def test_the_door_is_told_and_its_secret_is_in_no_text() -> None:
    one = agent()
    assert one.heartbeat().facts.door == DOOR
    assert "secret" not in repr(one.heartbeat())
    assert "secret" not in repr(SOURCE)
