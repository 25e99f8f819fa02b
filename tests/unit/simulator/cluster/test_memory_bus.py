"""Redis's part in memory: who gets what, when, and in which order."""

from __future__ import annotations

import pytest

from services.simulator.cluster.memory_bus import MemoryBus
from shared.bus import streams
from shared.messages.message import Message
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt, Cancel, Enqueued, Pulled

LATENCY_S = 0.5


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(latency_s=LATENCY_S)


def collect(bus: MemoryBus, stream: str) -> list[tuple[float, Message]]:
    """What arrives at a stream, with the time."""
    seen: list[tuple[float, Message]] = []
    bus.subscribe(stream, lambda message, now: seen.append((now, message)))
    return seen


def cancel(name: str) -> Cancel:
    return Cancel(request_id=name)


def enqueue(bus: MemoryBus, *names: str) -> None:
    for name in names:
        bus.send(streams.group("g0"), Enqueued(request_id=name, attempt=0, gateway="gw"))


def test_a_message_arrives_one_latency_later(bus: MemoryBus) -> None:
    seen = collect(bus, "inbox")
    bus.at(2.0, lambda: bus.send("inbox", cancel("r0")))
    bus.run_until(9.0)
    assert seen == [(2.0 + LATENCY_S, cancel("r0"))]


def test_messages_of_one_moment_arrive_in_the_order_in_which_they_were_sent(bus: MemoryBus) -> None:
    seen = collect(bus, "inbox")
    for name in ("r2", "r0", "r1"):
        bus.send("inbox", cancel(name))
    bus.run_until(LATENCY_S)
    assert [message for _, message in seen] == [cancel("r2"), cancel("r0"), cancel("r1")]


def test_actions_run_by_time_then_by_the_order_of_asking(bus: MemoryBus) -> None:
    ran: list[str] = []
    for time_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (0.0, "now")):
        bus.at(time_s, lambda name=name: ran.append(name))  # type: ignore[misc]
    bus.run_until(1.0)
    assert (ran, bus.now) == (["now", "first", "second"], 1.0)
    bus.run_until(5.0)
    assert (ran[-1], bus.now) == ("late", 5.0)


def test_time_does_not_run_back(bus: MemoryBus) -> None:
    bus.run_until(3.0)
    times: list[float] = []
    bus.at(1.0, lambda: times.append(bus.now))
    assert bus.step()
    assert times == [3.0]
    assert not bus.step()


def test_what_is_sent_to_a_stream_without_a_reader_is_lost(bus: MemoryBus) -> None:
    seen = collect(bus, "inbox")
    bus.send("inbox", cancel("r0"))
    bus.unsubscribe("inbox")
    bus.run_until(1.0)
    assert seen == []


def test_a_pull_takes_from_the_head_and_tells_the_queue_manager(bus: MemoryBus) -> None:
    seen = collect(bus, streams.QUEUE)
    payload = Payload("r0", 0, "gw", "a", [1], Sampling(max_tokens=3))
    bus.payloads["r0"] = payload
    enqueue(bus, "r0", "r1", "r2")
    taken = bus.pull("g0", 2, "n0", "n0.1")
    assert [(entry.request_id, found) for entry, found in taken] == [("r0", payload), ("r1", None)]
    bus.run_until(1.0)
    requests = [Attempt("r0", 0), Attempt("r1", 0)]
    assert seen == [(LATENCY_S, Pulled(node="n0", epoch="n0.1", group="g0", requests=requests))]


def test_a_pull_from_an_empty_or_a_dropped_group_is_not_told(bus: MemoryBus) -> None:
    seen = collect(bus, streams.QUEUE)
    enqueue(bus, "r0")
    bus.drop(streams.group("g0"))
    assert bus.pull("g0", 2, "n0", "n0.1") == []
    assert bus.pull("never", 2, "n0", "n0.1") == []
    bus.run_until(1.0)
    assert (seen, bus.group_streams()) == ([], [])


def test_a_listener_hears_everything_as_it_is_sent(bus: MemoryBus) -> None:
    heard: list[tuple[float, str, Message]] = []
    bus.listen(lambda now, stream, message: heard.append((now, stream, message)))
    bus.send("nobody", cancel("r0"))
    enqueue(bus, "r1")
    assert heard == [
        (0.0, "nobody", cancel("r0")),
        (0.0, "treadle:group:g0", Enqueued(request_id="r1", attempt=0, gateway="gw")),
    ]
