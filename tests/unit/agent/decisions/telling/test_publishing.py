"""What an agent says of a step, and what it does when it is told to stop."""

from __future__ import annotations

from gpu_node.agent.decisions.actions import Ack, Beat, DropImages, NewEpoch, Publish, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol.protocol import AbortRequests, LoadModel
from shared.messages.nodes.nodes import Fence, Heartbeat, Load, NodeFacts
from shared.messages.requests.requests import Abort, Chunk, FinishedRequest, Tokens
from tests.unit.agent.events import (
    attempt_of,
    entry,
    loaded,
    make_agent,
    payload_of,
    queue,
    step,
    taken,
    tokens,
)


def make_busy_agent() -> AgentCore:
    """Runs r0 for gw0, and r1 and r2 for gw1."""
    agent = make_agent("a", num_admittable=8)
    agent.handle(queue(("g0", "a", 3)))
    agent.handle(taken("g0", 8, entry("r0", gateway="gw0"), entry("r1", gateway="gw1"), entry("r2", gateway="gw1")))
    return agent


# --- steps ----------------------------------------------------------------------------------------------------------


def test_a_steps_tokens_travel_in_one_message_a_gateway() -> None:
    agent = make_busy_agent()
    chunks = [tokens("r0", 5), tokens("r1", 6), tokens("r2", 7)]
    assert agent.handle(step(*chunks)) == [
        Publish(
            tokens={
                "gw0": Tokens(node="n0", chunks=[chunks[0]]),
                "gw1": Tokens(node="n0", chunks=[chunks[1], chunks[2]]),
            }
        )
    ]


def test_a_step_without_tokens_says_nothing() -> None:
    assert make_busy_agent().handle(step()) == []


def test_the_last_tokens_acknowledge_the_entry_and_tell_the_queue_manager() -> None:
    agent = make_busy_agent()
    agent.handle(step(tokens("r0", 2, 3, 4)))
    last, more = tokens("r0", 5, 6, index=3, finish_reason="length"), tokens("r1", 7)
    assert agent.handle(step(last, more)) == [
        Publish(
            tokens={"gw0": Tokens(node="n0", chunks=[last]), "gw1": Tokens(node="n0", chunks=[more])},
            acks=[Ack("g0", b"r0-0")],
            finished=[FinishedRequest("r0", 0, "length", 5)],
        )
    ]
    assert sorted(agent.running) == ["r1", "r2"]


def test_an_attempt_is_over_with_its_last_choice_and_the_tokens_of_all_are_counted() -> None:
    agent = make_busy_agent()
    chunks = [tokens("r0", 5, 6, choice=0), tokens("r0", 7, choice=1, finish_reason="stop", is_last=False)]
    assert agent.handle(step(*chunks)) == [Publish(tokens={"gw0": Tokens(node="n0", chunks=chunks)})]
    assert "r0" in agent.running
    last = tokens("r0", 8, index=2, choice=0, finish_reason="length")
    assert agent.handle(step(last)) == [
        Publish(
            tokens={"gw0": Tokens(node="n0", chunks=[last])},
            acks=[Ack("g0", b"r0-0")],
            finished=[FinishedRequest("r0", 0, "length", 4)],
        )
    ]


def test_what_earlier_attempts_brought_is_counted_too() -> None:
    agent = make_agent("a", num_admittable=1)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 1, entry("r0", 1, payload=payload_of("r0", 1, output=[5, 6]))))
    (published,) = agent.handle(step(tokens("r0", 7, attempt=1, index=2, finish_reason="stop")))
    assert isinstance(published, Publish)
    assert published.finished == [FinishedRequest("r0", 1, "stop", 3)]


def test_tokens_of_an_attempt_that_is_not_run_any_more_are_dropped() -> None:
    agent = make_busy_agent()
    agent.handle(Abort(requests=[attempt_of("r0")]))
    assert agent.handle(step(tokens("r0", 5), tokens("r1", 6, attempt=1), tokens("unknown", 7))) == []


def test_an_error_of_the_engine_reaches_the_client() -> None:
    agent = make_busy_agent()
    failed = Chunk("r0", 0, 0, [], "error", "prompt too long", is_last=True)
    assert agent.handle(step(failed)) == [
        Publish(
            tokens={"gw0": Tokens(node="n0", chunks=[failed])},
            acks=[Ack("g0", b"r0-0")],
            finished=[FinishedRequest("r0", 0, "error", 0)],
        )
    ]


# --- aborts ---------------------------------------------------------------------------------------------------------


def test_an_abort_frees_the_engine_and_clears_the_ledger() -> None:
    agent = make_busy_agent()
    assert agent.handle(Abort(requests=[attempt_of("r0"), attempt_of("r2")])) == [
        Tell(AbortRequests(["r0", "r2"])),
        Publish(acks=[Ack("g0", b"r0-0"), Ack("g0", b"r2-0")]),
    ]
    assert list(agent.running) == ["r1"]


def test_an_abort_of_another_attempt_or_of_an_unknown_request_stops_nothing() -> None:
    agent = make_busy_agent()
    attempts = [attempt_of("r0", 1), attempt_of("unknown")]
    assert agent.handle(Abort(requests=attempts)) == [DropImages(attempts)], "which may wait for other nodes"
    assert sorted(agent.running) == ["r0", "r1", "r2"]


def test_the_end_of_the_last_request_makes_way_for_a_swap() -> None:
    agent = make_busy_agent()
    agent.handle(queue(("g1", "b", 1)))
    stopped = agent.handle(Abort(requests=[attempt_of("r0"), attempt_of("r1"), attempt_of("r2")]))
    assert stopped[-2:] == [Tell(LoadModel("b")), Beat(agent.heartbeat())]


def test_a_newer_attempt_takes_the_place_of_the_one_that_runs() -> None:
    """Its `Abort` may come after the newer attempt was pulled: it must not stop that one."""
    agent = make_busy_agent()
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 5, entry("r0", 1, gateway="gw0")))
    assert agent.handle(Abort(requests=[attempt_of("r0", 0)])) == [DropImages([attempt_of("r0", 0)])]
    assert agent.running["r0"].attempt == 1


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_a_fence_ends_the_epoch() -> None:
    assert make_busy_agent().handle(Fence(node="n0", epoch="n0.1")) == [NewEpoch()]


def test_what_was_said_to_another_epoch_is_ignored() -> None:
    agent = make_agent()
    for message in (
        Fence(node="n0", epoch="n0.0"),
        Load(node="n0", epoch="n0.0", model="a"),
        queue(("g0", "a", 1), epoch="n0.0"),
    ):
        assert agent.handle(message) == []


# --- models and heartbeats ------------------------------------------------------------------------------------------


def test_with_nothing_to_do_it_loads_what_the_scheduler_says() -> None:
    agent = make_agent()
    told = agent.handle(Load(node="n0", epoch="n0.1", model="b"))
    assert told == [Tell(LoadModel("b")), Beat(agent.heartbeat())]


def test_it_keeps_the_model_it_has() -> None:
    assert make_agent("a").handle(Load(node="n0", epoch="n0.1", model="b")) == []


def test_a_loaded_model_is_reported_at_once() -> None:
    agent = make_agent()
    agent.handle(Load(node="n0", epoch="n0.1", model="b"))
    beat = Heartbeat(
        node="n0",
        epoch="n0.1",
        facts=NodeFacts(
            device="cpu", swap_s=1.5, max_num_seqs=8, step_tokens=64, max_image_bytes=256 << 20, reads_ahead=True
        ),
        model="b",
        num_blocks=100,
        num_free_blocks=100,
        block_bytes=64,
        num_running=0,
        num_waiting=0,
    )
    assert agent.handle(loaded("b", load_s=1.5)) == [Beat(beat)]


def test_a_model_that_was_there_already_says_nothing_about_the_time_of_a_swap() -> None:
    agent = make_agent()
    agent.handle(loaded("a", load_s=1.5))
    agent.handle(loaded("a", load_s=0.0))
    assert agent.heartbeat().facts.swap_s == 1.5


def test_without_a_model_a_heartbeat_tells_of_no_memory() -> None:
    beat = make_agent().heartbeat()
    assert (beat.model, beat.num_blocks, beat.num_free_blocks, beat.block_bytes) == ("", 0, 0, 0)
