"""Who has been there when an engine died begins alone; and what the agent says of itself when Redis is another one."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.actions import (
    Ack,
    AgentAction,
    Drain,
    GroupEntry,
    ImageHeld,
    Publish,
    Pull,
    SayInventory,
    TakeStock,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol import protocol
from gpu_node.engine.process.protocol.protocol import AbortRequests, RunAttempt
from shared.messages.requests.requests import Abort, Attempt, Evict, EvictedRequest, ImageTicket
from tests.unit.agent.events import attempt_of, entry, evicted, make_agent, queue, step, taken, tokens


def suspect(request_id: str) -> GroupEntry:
    """An engine has died with its first attempt."""
    made = entry(request_id, attempt=1)
    assert made.payload is not None
    return replace(made, payload=replace(made.payload, num_crashes=1))


def pulled(*entries: GroupEntry) -> tuple[AgentCore, list[AgentAction]]:
    """An agent that has pulled these of g0, and what it has done about it; there is room for two more."""
    agent = make_agent("a", num_admittable=len(entries) + 2)
    agent.handle(queue(("g0", "a", 9)))
    return agent, agent.handle(taken("g0", len(entries), *entries))


def begun(actions: list[AgentAction]) -> list[str]:
    """Whom the engine is told to run."""
    return [
        action.command.payload.request_id
        for action in actions
        if isinstance(action, Tell) and isinstance(action.command, RunAttempt)
    ]


# --- who begins -----------------------------------------------------------------------------------------------------


def test_without_a_suspect_all_begin_at_once_and_any_may_be_blamed() -> None:
    agent, actions = pulled(entry("r0"), entry("r1"))
    assert begun(actions) == ["r0", "r1"]
    assert agent.blamed == []


def test_a_suspect_begins_when_all_others_have_brought_a_token_and_nobody_begins_beside_it() -> None:
    agent, actions = pulled(entry("r0"), suspect("r1"), suspect("r2"), entry("r3"))
    assert begun(actions) == ["r0"]
    assert begun(agent.handle(step(tokens("r0", 5)))) == ["r1"]
    assert agent.blamed == [Attempt("r1", 1)], "r0 goes on, and is not the reason"
    assert begun(agent.handle(step(tokens("r0", 6, index=1)))) == []
    assert begun(agent.handle(step(tokens("r1", 5, attempt=1)))) == ["r2"]
    assert begun(agent.handle(step(tokens("r2", 5, attempt=1)))) == ["r3"]
    assert agent.blamed == []


def test_nothing_is_pulled_while_somebody_is_held_back() -> None:
    agent, actions = pulled(suspect("r0"), entry("r1"))
    assert begun(actions) == ["r0"]
    assert not any(isinstance(action, Pull) for action in actions)
    actions = agent.handle(step(tokens("r0", 5, attempt=1), num_admittable=3, num_received=1))
    assert begun(actions) == ["r1"]
    assert actions[-1] == Pull("g0", 2), "of the three that the engine could take r1 is one"


def test_a_suspect_that_ends_without_a_token_lets_the_next_begin() -> None:
    agent, _ = pulled(suspect("r0"), entry("r1"))
    assert begun(agent.handle(step(tokens("r0", attempt=1, finish_reason="refused")))) == ["r1"]


def test_a_suspect_that_gave_way_and_comes_back_does_not_wait_for_itself() -> None:
    agent, actions = pulled(suspect("r0"))
    assert begun(actions) == ["r0"]
    agent.handle(Evict(node="n0", epoch="n0.1", requests=[attempt_of("r0", 1)]))
    agent.handle(evicted({"r0": 0}))
    assert begun(agent.handle(taken("g1", 1, suspect("r0")))) == ["r0"]
    assert agent.blamed == [Attempt("r0", 1)]


# --- who is held back can leave -------------------------------------------------------------------------------------


def test_an_abort_reaches_who_is_held_back_and_who_is_waited_for() -> None:
    agent, _ = pulled(suspect("r0"), entry("r1"), entry("r2"))
    assert begun(agent.handle(Abort(requests=[attempt_of("r1")]))) == []
    assert begun(agent.handle(Abort(requests=[attempt_of("r0", 1)]))) == ["r2"]
    assert list(agent.running) == ["r2"]


def test_who_is_held_back_is_given_back_where_a_hand_over_is_asked_for() -> None:
    agent, _ = pulled(suspect("r0"), entry("r1"))
    actions = agent.handle(Evict(node="n0", epoch="n0.1", requests=[attempt_of("r1"), attempt_of("r0", 1)]))
    assert actions == [
        Tell(AbortRequests(["r1"])),
        Publish(acks=[Ack("g0", b"r1-0")], evicted=[EvictedRequest("r1", 0, 0, 0, "n0")]),
        Tell(protocol.TakeOut(["r0"])),
        Pull("g0", 3),
    ]


def test_a_node_that_stops_gives_back_who_is_held_back() -> None:
    agent, _ = pulled(suspect("r0"), entry("r1"))
    agent.handle(Drain())
    assert not agent.is_drained
    agent.handle(evicted({"r0": 0}))
    assert agent.is_drained


# --- what is here ---------------------------------------------------------------------------------------------------


def test_the_inventory_tells_what_runs_and_what_is_kept() -> None:
    agent, _ = pulled(entry("r0"), suspect("r1"), entry("r2"), entry("r3"))
    agent.handle(queue(("g0", "a", 0)))
    agent.handle(Evict(node="n0", epoch="n0.1", requests=[attempt_of("r0")]))
    agent.handle(evicted({"r0": 12}))  # its image is under way: the queue manager believes that it runs
    assert agent.handle(TakeStock()) == [
        SayInventory(running=[attempt_of("r1", 1), attempt_of("r2"), attempt_of("r3"), attempt_of("r0")], parked=[])
    ]


def test_kv_that_is_kept_counts_as_parked_until_another_node_has_it() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 1, entry("r0")))
    agent.handle(step(tokens("r0", 5), num_received=1))
    agent.handle(queue(("g1", "a", 1), yielding=["g0"]))
    agent.handle(evicted({"r0": 3}))
    assert agent.handle(TakeStock())[0] == SayInventory(running=[], parked=[attempt_of("r0")])
    agent.handle(Evict(node="n0", epoch="n0.1", requests=[attempt_of("r0")]))
    assert agent.handle(TakeStock())[0] == SayInventory(running=[], parked=[attempt_of("r0")])
    agent.handle(ImageHeld(attempt_of("r0"), ImageTicket("n0", "", "", 1)))
    assert agent.handle(TakeStock())[0] == SayInventory(running=[], parked=[])
