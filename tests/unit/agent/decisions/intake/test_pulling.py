"""What an agent takes from its virtual queue, and when."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.actions import Ack, AgentAction, Beat, Publish, Pull, Tell
from gpu_node.agent.decisions.headroom import MAX_PULL
from gpu_node.engine.process.protocol.protocol import AbortRequests, LoadModel, ModelFailed, RunAttempt
from shared.messages.requests.requests import Chunk, EvictedRequest, FinishedRequest, Tokens
from tests.unit.agent.events import entry, evicted, loaded, make_agent, payload_of, queue, step, taken, tokens


def refusal(*request_ids: str, error: str, attempt: int = 0, num_done: int = 0) -> Publish:
    """What is published about entries of g0 that nobody will run."""
    chunks = [
        Chunk(name, attempt, num_done, [], finish_reason="error", error=error, is_last=True) for name in request_ids
    ]
    return Publish(
        tokens={"gw": Tokens(node="n0", chunks=chunks)},
        acks=[Ack("g0", f"{name}-{attempt}".encode()) for name in request_ids],
        finished=[FinishedRequest(name, attempt, "error", num_done) for name in request_ids],
    )


# --- how much -------------------------------------------------------------------------------------------------------


def test_it_pulls_what_the_engine_can_admit_however_many_wait() -> None:
    agent = make_agent("a", num_admittable=3)
    assert agent.handle(queue(("g0", "a", 50))) == [Pull("g0", 3)]


def test_it_does_not_pull_while_the_engine_is_full() -> None:
    agent = make_agent("a", num_admittable=0)
    assert agent.handle(queue(("g0", "a", 1))) == []
    assert agent.handle(step(num_admittable=1)) == [Pull("g0", 1)]


def test_one_pull_is_bounded() -> None:
    agent = make_agent("a", num_admittable=MAX_PULL + 1)
    assert agent.handle(queue(("g0", "a", 500))) == [Pull("g0", MAX_PULL)]


def test_it_waits_for_the_answer_to_a_pull_before_the_next() -> None:
    agent = make_agent("a", num_admittable=3)
    agent.handle(queue(("g0", "a", 2)))
    assert agent.handle(queue(("g0", "a", 3))) == []
    assert agent.handle(step(num_admittable=3)) == []


def test_what_the_engine_has_not_seen_yet_takes_room() -> None:
    agent = make_agent("a", num_admittable=3)
    agent.handle(queue(("g0", "a", 9)))
    runs: list[AgentAction] = [Tell(RunAttempt(payload_of(name))) for name in ("r0", "r1", "r2")]
    assert agent.handle(taken("g0", 3, entry("r0"), entry("r1"), entry("r2"))) == runs, "three are under way"
    assert agent.handle(step(num_admittable=3, num_received=0)) == [], "the engine has seen none of them"
    assert agent.handle(step(num_admittable=2, num_received=2)) == [Pull("g0", 1)], "one is still under way"


def test_an_entry_that_cannot_run_takes_no_room() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 2)))
    actions = agent.handle(taken("g0", 1, entry("r0", payload=payload_of("r0", attempt=1))))
    assert actions[-1] == Pull("g0", 1)


# --- which group ----------------------------------------------------------------------------------------------------


def test_a_group_that_gave_less_than_was_asked_for_is_empty_and_the_next_one_is_served() -> None:
    agent = make_agent("a", num_admittable=3)
    agent.handle(queue(("g0", "a", 1), ("g1", "a", 5)))
    assert agent.handle(taken("g0", 3, entry("r0"))) == [Tell(RunAttempt(payload_of("r0"))), Pull("g1", 2)]


def test_a_group_that_gave_all_is_asked_again() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 2), ("g1", "a", 5)))
    agent.handle(taken("g0", 1, entry("r0")))
    assert agent.handle(step(num_admittable=1, num_received=1)) == [Pull("g0", 1)]


def test_when_every_group_is_empty_it_waits_for_the_bell() -> None:
    agent = make_agent("a", num_admittable=3)
    agent.handle(queue(("g0", "a", 1)))
    assert agent.handle(taken("g0", 3)) == []
    assert agent.handle(step(num_admittable=3)) == []
    assert agent.handle(queue(("g0", "a", 1))) == [Pull("g0", 3)]


def test_a_new_order_counts_from_the_next_pull_on() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 5)))
    agent.handle(queue(("urgent", "a", 1), ("g0", "a", 4)))
    agent.handle(taken("g0", 1, entry("r0")))
    assert agent.handle(step(num_admittable=1, num_received=1)) == [Pull("urgent", 1)]


def test_who_has_time_joins_only_so_many_and_is_passed_by_who_has_not() -> None:
    agent = make_agent("a", num_admittable=9)
    agent.handle(queue(("g0", "a", 2)))
    agent.handle(taken("g0", 9, entry("r0"), entry("r1")))
    agent.handle(step(num_admittable=7, num_received=2))
    assert agent.handle(queue(("patient", "a", 5, 3), ("urgent", "a", 1))) == [Pull("patient", 1)], "two run, of three"
    assert agent.handle(taken("patient", 1, entry("r2")))[-1] == Pull("urgent", 6)


def test_who_has_time_is_not_passed_by_another_model() -> None:
    """The order of models is the plan's."""
    agent = make_agent("a", num_admittable=9)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 9, entry("r0")))
    agent.handle(step(num_admittable=8, num_received=1))
    assert agent.handle(queue(("patient", "a", 5, 1), ("other", "b", 1), ("urgent", "a", 1))) == []


def test_who_is_held_back_brings_no_more_prompts_than_one_step_reads() -> None:
    agent = make_agent("a", num_admittable=9)
    assert agent.handle(queue(("held back", "a", 5, 8, 2), ("favoured", "a", 1))) == [Pull("held back", 2)]
    assert agent.handle(taken("held back", 2, entry("r0"), entry("r1")))[-1] == Pull("favoured", 7)
    assert agent.handle(taken("favoured", 7)) == [], "the engine has not read the two"
    assert agent.handle(step(num_admittable=7, num_received=2, num_waiting=2)) == []
    assert agent.handle(step(num_admittable=7, num_received=2, num_waiting=1)) == [Pull("held back", 1)]


# --- swaps ----------------------------------------------------------------------------------------------------------


def test_the_head_of_the_queue_decides_the_model() -> None:
    agent = make_agent()
    actions = agent.handle(queue(("g0", "b", 1), ("g1", "a", 1)))
    assert actions == [Tell(LoadModel("b")), Beat(agent.heartbeat())]


def test_while_a_model_loads_nothing_else_is_begun() -> None:
    agent = make_agent()
    agent.handle(queue(("g0", "b", 1)))
    assert agent.handle(queue(("g1", "a", 1), ("g0", "b", 1))) == []
    agent.handle(queue(("g0", "b", 1)))
    agent.handle(loaded("b"))
    assert agent.handle(step(num_admittable=2)) == [Pull("g0", 2)]


def test_it_swaps_only_when_the_engine_is_empty() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 1), ("g1", "b", 1)))
    agent.handle(taken("g0", 2, entry("r0")))
    assert agent.handle(step(num_admittable=2, num_received=1)) == [], "r0 still runs"
    last = Chunk("r0", 0, 0, [7], "stop", is_last=True)
    actions = agent.handle(step(last, num_admittable=2, num_received=1))
    assert actions[-2:] == [Tell(LoadModel("b")), Beat(agent.heartbeat())]


def test_groups_of_the_loaded_model_do_not_overtake_the_head() -> None:
    """Else a model with steady traffic would never let go of the node."""
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 2, entry("r0")))
    assert agent.handle(queue(("g1", "b", 1), ("g2", "a", 1))) == []


# --- what is not run ------------------------------------------------------------------------------------------------


def given_back(request_id: str, attempt: int = 0, num_done: int = 0) -> Publish:
    """An entry of g0 goes back, for its gateway to submit it again."""
    return Publish(
        acks=[Ack("g0", f"{request_id}-{attempt}".encode())],
        evicted=[EvictedRequest(request_id, attempt, num_done, 0, "n0")],
    )


def test_a_request_whose_payload_is_gone_goes_back_for_its_gateway_to_write_it_again() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    assert agent.handle(taken("g0", 2, replace(entry("r0"), payload=None))) == [given_back("r0")]
    assert agent.running == {}


def test_a_payload_of_an_older_attempt_is_as_good_as_none() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    older = entry("r0", 1, payload=payload_of("r0", 0, output=[5, 6]))
    assert agent.handle(taken("g0", 2, older)) == [given_back("r0", attempt=1, num_done=2)]


def test_an_entry_that_a_newer_attempt_has_overtaken_is_only_acknowledged() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    newer = entry("r0", 0, payload=payload_of("r0", 1, output=[5, 6]))
    assert agent.handle(taken("g0", 2, newer)) == [Publish(acks=[Ack("g0", b"r0-0")])]
    assert agent.running == {}


def test_a_payload_of_another_version_is_refused_since_it_would_be_written_alike() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    strange = replace(entry("r0"), payload=None, unreadable="field `x`")
    error = "the request is of another version: field `x`"
    assert agent.handle(taken("g0", 2, strange)) == [refusal("r0", error=error)]


def test_a_group_name_that_was_given_to_another_model_runs_nothing_wrong() -> None:
    """Redis forgot the group, and the queue manager gave its name away."""
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    assert agent.handle(taken("g0", 2, entry("r0", model="b"))) == [given_back("r0")]


def test_requests_of_a_model_that_no_node_can_load_are_answered_with_the_reason() -> None:
    agent = make_agent()
    agent.handle(queue(("g0", "b", 2)))
    assert agent.handle(ModelFailed("b", "no such file")) == [Beat(agent.heartbeat())]
    assert agent.heartbeat().facts.broken_models == ["b"]
    assert agent.handle(queue(("g0", "b", 2), hopeless=["b"])) == [Pull("g0", MAX_PULL)]
    assert agent.handle(taken("g0", MAX_PULL, entry("r0", model="b"), entry("r1", model="b"))) == [
        refusal("r0", "r1", error="no such file")
    ]
    assert agent.running == {}


def test_requests_of_a_model_that_another_node_may_have_are_left_to_it() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "b", 1), ("g1", "a", 1)))
    assert agent.handle(ModelFailed("b", "it is too large")) == [Beat(agent.heartbeat()), Pull("g1", 2)]


def test_after_a_hopeless_group_the_next_is_served() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "b", 1), ("g1", "a", 1), hopeless=["b"]))
    agent.handle(ModelFailed("b", "no such file"))
    actions = agent.handle(taken("g0", MAX_PULL, entry("r0", model="b")))
    assert actions == [refusal("r0", error="no such file"), Pull("g1", 2)]


def test_an_attempt_that_is_handed_out_again_while_it_runs_is_not_given_to_the_engine_again() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 1, entry("r0")))
    agent.handle(step(tokens("r0", 5), num_received=1))
    assert agent.handle(taken("g1", 1, entry("r0"))) == []
    end = agent.handle(step(tokens("r0", 6, index=1, finish_reason="length"), num_received=1))
    assert end[0] == Publish(
        tokens={"gw": Tokens(node="n0", chunks=[tokens("r0", 6, index=1, finish_reason="length")])},
        acks=[Ack("g1", b"r0-0")],
        finished=[FinishedRequest("r0", 0, "length", 2)],
    )
    assert agent.running == {}


def test_kv_that_was_kept_of_a_request_that_goes_back_is_dropped() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 1, entry("r0")))
    agent.handle(step(tokens("r0", 5), num_received=1))
    agent.handle(queue(("g1", "a", 1), yielding=["g0"]))
    agent.handle(evicted({"r0": 3}))
    again = replace(entry("r0", kv_at="n0"), payload=None)
    assert agent.handle(taken("g0", 1, again)) == [Tell(AbortRequests(["r0"])), given_back("r0")]
    assert agent.inventory().parked == []
