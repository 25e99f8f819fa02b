"""Who leaves a node that only prefills, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.agent.decisions.actions import (
    AgentAction,
    Beat,
    Drain,
    DropImages,
    GroupEntry,
    ImageBegun,
    ImageHeld,
    Publish,
    ReadImage,
    SayOpened,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.prefilled import MAX_MOVED_ATTEMPTS
from gpu_node.engine.process.protocol.growth_protocol import OpenImages
from gpu_node.engine.process.protocol.protocol import HandOverImages, StepReport, TakeOut
from shared.messages.nodes.nodes import Serve
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import (
    HANDED_OVER,
    EvictedRequest,
    ImageTicket,
    KvOpened,
    ReadAhead,
    VirtualQueue,
)
from tests.unit.agent.events import (
    EPOCH,
    OPTIONS,
    attempt_of,
    entry,
    evicted,
    loaded,
    payload_of,
    stats,
    step,
    taken,
    tokens,
)

TICKET = ImageTicket("n0", "http://n0:9400/images/v1/n0.1-1", "secret", 4096)
COST = StepCost(0.1, 0.001, 0.0)
KV_TOKEN_BYTES = 16
"""Of `loaded`: blocks of 64 bytes for four tokens."""


def told(*decoded: str, read_ahead: tuple[str, ...] = ()) -> VirtualQueue:
    """What other nodes decode, and of what they read KV ahead."""
    decoded_elsewhere = list(decoded)
    return VirtualQueue(
        node="n0", epoch=EPOCH, groups=[], decoded_elsewhere=decoded_elsewhere, read_ahead=list(read_ahead)
    )


def prefilling(*entries: GroupEntry, evicted_kv_bytes: int = 1 << 20, kv_bytes: int = 0) -> AgentCore:
    """A node that only prefills, with ``a``, which others decode; it has pulled two requests, or these."""
    agent = AgentCore("n0", EPOCH, "cpu", replace(OPTIONS, evicted_kv_bytes=evicted_kv_bytes), "prefill")
    agent.handle(loaded("a"))
    agent.handle(StepReport([], replace(stats(num_admittable=5, cost=COST), evicted_kv_bytes=kv_bytes)))
    agent.handle(told("a"))
    agent.handle(taken("g0", 5, *(entries or (entry("r0"), entry("r1")))))
    return agent


def leaving(actions: list[AgentAction]) -> list[str]:
    """Requests that the engine is told to take out."""
    return [
        name
        for one in actions
        if isinstance(one, Tell) and isinstance(one.command, TakeOut)
        for name in one.command.request_ids
    ]


def test_a_node_says_which_phases_it_serves() -> None:
    assert prefilling().heartbeat().facts.phases == "prefill"


def test_a_node_that_follows_the_load_does_both_until_it_is_told_and_says_so_at_once() -> None:
    agent = AgentCore("n0", EPOCH, "cpu", OPTIONS, "auto")
    facts = agent.heartbeat().facts
    assert (facts.phases, facts.follows_load) == ("both", True)
    (beat,) = agent.handle(Serve(node="n0", epoch=EPOCH, phases="decode"))
    assert isinstance(beat, Beat)
    assert (beat.heartbeat.facts.phases, beat.heartbeat.facts.follows_load) == ("decode", True)
    assert agent.handle(Serve(node="n0", epoch=EPOCH, phases="decode")) == [], "it does already"
    assert agent.handle(Serve(node="n0", epoch="n0.0", phases="prefill")) == [], "of an earlier epoch"
    assert agent.heartbeat().facts.phases == "decode"


def test_what_is_configured_stays_whatever_is_told() -> None:
    agent = prefilling()
    assert agent.handle(Serve(node="n0", epoch=EPOCH, phases="decode")) == []
    assert (agent.heartbeat().facts.phases, agent.heartbeat().facts.follows_load) == ("prefill", False)


def test_a_request_leaves_behind_its_first_token_as_one_that_a_plan_moves() -> None:
    agent = prefilling()
    published, *others = agent.handle(step(tokens("r0", 5)))
    assert isinstance(published, Publish)
    assert others == [Tell(TakeOut(["r0"]))]
    assert agent.handle(evicted({"r0": 3})) == [Tell(HandOverImages(["r0"]))]
    (given,) = agent.handle(ImageHeld(attempt_of("r0"), TICKET))
    assert isinstance(given, Publish)
    assert given.evicted == [EvictedRequest("r0", 0, 1, 3, HANDED_OVER, TICKET)]
    assert list(agent.running) == ["r1"]


def test_one_answer_is_waited_for_and_then_the_others_leave_together() -> None:
    agent = prefilling(entry("r0"), entry("r1"), entry("r2"))
    assert leaving(agent.handle(step(tokens("r0", 5)))) == ["r0"]
    assert leaving(agent.handle(step(tokens("r1", 5), tokens("r2", 5)))) == []
    assert leaving(agent.handle(evicted({"r0": 3}))) == ["r1", "r2"]


def test_they_stay_while_nobody_decodes_the_model_and_leave_as_soon_as_somebody_does() -> None:
    agent = prefilling()
    agent.handle(told("b"))
    assert leaving(agent.handle(step(tokens("r0", 5)))) == []
    assert leaving(agent.handle(told("a", "b"))) == ["r0"]


def test_a_rest_that_is_over_before_it_could_be_elsewhere_ends_here() -> None:
    """Nine tokens are asked for: with eight of them, one is left."""
    agent = prefilling(entry("r0", payload=payload_of("r0", output=[5] * 7)), entry("r1"))
    assert leaving(agent.handle(step(tokens("r0", 5, index=7), tokens("r1", 5)))) == ["r1"]
    last = entry("r0", payload=replace(payload_of("r0"), sampling=Sampling(max_tokens=2)))
    assert leaving(prefilling(last).handle(step(tokens("r0", 5)))) == []


def test_who_came_with_kv_was_sent_here_to_go_on() -> None:
    parked = entry("r0", kv_at="n0")
    assert leaving(prefilling(parked, entry("r1")).handle(step(tokens("r0", 5), tokens("r1", 5)))) == ["r1"]


def test_whose_kv_was_lost_again_and_again_stays() -> None:
    for attempt, leaves in ((MAX_MOVED_ATTEMPTS - 1, ["r0"]), (MAX_MOVED_ATTEMPTS, [])):
        payload = replace(payload_of("r0", attempt), outputs=[Output([5])])
        agent = prefilling(entry("r0", attempt, payload=payload))
        assert leaving(agent.handle(step(tokens("r0", 5, attempt=attempt, index=1)))) == leaves


@pytest.mark.parametrize(("free_bytes", "leaves"), [(2 * 35, ["r0", "r1"]), (2 * 35 - 1, ["r0"]), (34, [])])
def test_as_many_leave_as_host_memory_has_room_for(free_bytes: int, leaves: list[str]) -> None:
    """Two tokens of prompt, one drawn, and at most two blocks of 16 that are not known here yet: 35 tokens."""
    room = free_bytes * KV_TOKEN_BYTES
    agent = prefilling(evicted_kv_bytes=room + 100, kv_bytes=100)
    report = StepReport([tokens("r0", 5), tokens("r1", 5)], replace(stats(cost=COST), evicted_kv_bytes=100))
    assert leaving(agent.handle(report)) == leaves


def test_choices_leave_together_when_one_of_them_has_a_token() -> None:
    agent = prefilling(entry("r0", payload=replace(payload_of("r0"), sampling=Sampling(max_tokens=9, num_choices=2))))
    assert leaving(agent.handle(step(tokens("r0", 5), tokens("r0", 6, choice=1)))) == ["r0"]


def test_a_node_that_is_to_stop_gives_back_all_it_has_once() -> None:
    agent = prefilling()
    assert leaving(agent.handle(Drain())) == ["r0", "r1"]
    assert leaving(agent.handle(step(tokens("r0", 5)))) == []


# --- KV that is read while its prompt is computed ---------------------------------------------------------------------

LONG = 64 + 625_000
"""Tokens of a prompt of which all but one step's 64 rows leave 10 MB: 2 ms by two ways of 10 GB/s each."""


def long(request_id: str, prompt_tokens: int = LONG, attempt: int = 0) -> GroupEntry:
    payload = replace(payload_of(request_id, attempt), prompt_token_ids=[1] * prompt_tokens)
    return entry(request_id, attempt, payload=replace(payload, sampling=Sampling(max_tokens=900)))


def opening(actions: list[AgentAction]) -> list[str]:
    """Requests whose images the engine is told to open."""
    return [
        name
        for one in actions
        if isinstance(one, Tell) and isinstance(one.command, OpenImages)
        for name in one.command.request_ids
    ]


def reading(*entries: GroupEntry, models: tuple[str, ...] = ("a",)) -> tuple[AgentCore, list[AgentAction]]:
    """A node whose images others read ahead, when it has pulled these."""
    agent = prefilling(evicted_kv_bytes=1 << 30)
    agent.handle(told("a", read_ahead=models))
    return agent, agent.handle(taken("g1", 5, *entries))


def test_images_of_long_prompts_are_open_while_they_are_computed() -> None:
    agent, actions = reading(long("r2"), long("r3", LONG - 1), entry("r4"))
    assert opening(actions) == ["r2"]
    assert opening(agent.handle(step())) == [], "once"
    assert opening(reading(long("r2"), models=())[1]) == [], "nobody reads them"
    assert opening(reading(long("r2", attempt=MAX_MOVED_ATTEMPTS))[1]) == [], "it stays"


def test_the_engine_has_the_request_before_it_is_told_to_open_its_image() -> None:
    _, actions = reading(long("r2"))
    kinds = [type(one.command).__name__ for one in actions if isinstance(one, Tell)]
    assert kinds == ["RunAttempt", "OpenImages"]


def test_the_queue_manager_hears_of_it_when_there_is_something_to_read() -> None:
    agent, _ = reading(long("r2"))
    (said,) = agent.handle(ImageBegun(attempt_of("r2"), TICKET))
    assert said == SayOpened(KvOpened(node="n0", epoch=EPOCH, request=attempt_of("r2"), image=TICKET))
    assert agent.handle(ImageBegun(attempt_of("r9"), TICKET)) == [DropImages([attempt_of("r9")])], "it is not here"


def test_room_that_the_engine_has_taken_for_the_image_is_not_asked_for_again() -> None:
    """Of the image, which has the prompt, a token and two blocks of 16 more, 30 tokens' room is taken."""
    for taken_tokens, leaves in ((30, ["r2"]), (29, [])):
        agent, _ = reading(long("r2"))
        agent.handle(ImageBegun(attempt_of("r2"), replace_bytes(TICKET, taken_tokens * KV_TOKEN_BYTES)))
        used = (1 << 30) - (LONG + 1 + 32 - 30) * KV_TOKEN_BYTES
        report = StepReport([tokens("r2", 5)], replace(stats(cost=COST), evicted_kv_bytes=used))
        assert leaving(agent.handle(report)) == leaves


def replace_bytes(ticket: ImageTicket, num_bytes: int) -> ImageTicket:
    return ImageTicket(ticket.node, ticket.url, ticket.token, num_bytes)


def test_a_node_that_is_told_reads_ahead_unless_it_is_to_stop() -> None:
    agent = prefilling()
    message = ReadAhead(node="n0", epoch=EPOCH, request=attempt_of("r7"), image=TICKET)
    assert agent.handle(message) == [ReadImage(TICKET)]
    assert agent.handle(ReadAhead(node="n0", epoch="n0.0", request=attempt_of("r7"), image=TICKET)) == []
    agent.handle(Drain())
    assert agent.handle(message) == []
