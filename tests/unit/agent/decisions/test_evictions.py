"""Who gives way to the head of the virtual queue, and what becomes of those that leave."""

from __future__ import annotations

import pytest

from gpu_node.agent.decisions.actions import (
    Ack,
    AgentAction,
    Beat,
    DiscardImage,
    Drain,
    DropImages,
    ImageFetched,
    ImageHeld,
    Publish,
    Pull,
    Resume,
    StopFetch,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol import protocol
from gpu_node.engine.process.protocol.protocol import (
    NO_IMAGE,
    AbortRequests,
    HandOverImages,
    ImageFile,
    LoadModel,
    RunAttempt,
)
from gpu_node.engine.requests.chunk import LOST
from shared.messages.requests.requests import (
    HANDED_OVER,
    Abort,
    Chunk,
    Evict,
    EvictedRequest,
    FinishedRequest,
    ImageTicket,
)
from tests.unit.agent.events import (
    attempt_of,
    entry,
    evicted,
    loaded,
    make_agent,
    payload_of,
    queue,
    step,
    taken,
    tokens,
)

NUM_RECEIVED = 5
TICKET = ImageTicket("n1", "http://n1:9400/images/v1/n1.1-1", "secret", 4096)
FILE = ImageFile("/proc/1/fd/9", 4096)


def make_full_agent() -> AgentCore:
    """Runs r0 and r1 of g0, then r2 and r3 of g1, then r4 of g0; the engine has no room left."""
    agent = make_agent("a", num_admittable=5)
    agent.handle(queue(("g0", "a", 3), ("g1", "a", 2)))
    agent.handle(taken("g0", 2, entry("r0"), entry("r1")))
    agent.handle(taken("g1", 2, entry("r2"), entry("r3")))
    agent.handle(taken("g0", 1, entry("r4")))
    agent.handle(queue())
    agent.handle(step(*(tokens(f"r{number}", 5, 6) for number in range(5)), num_received=NUM_RECEIVED))
    return agent


def make_yielding_agent(*request_ids: str) -> AgentCore:
    """As many of g1 give way as these requests need, which have been pulled at once."""
    agent = make_full_agent()
    agent.handle(queue(("urgent", "a", len(request_ids)), yielding=["g1"]))
    agent.handle(taken("urgent", len(request_ids), *(entry(name) for name in request_ids)))
    return agent


def hand_over(*request_ids: str, attempt: int = 0, epoch: str = "n0.1", drops_kv: bool = False) -> Evict:
    attempts = [attempt_of(name, attempt) for name in request_ids]
    return Evict(node="n0", epoch=epoch, requests=attempts, drops_kv=drops_kv)


def gone(request_id: str, kv_tokens: int, image: ImageTicket | None = None) -> EvictedRequest:
    """Taken out after two tokens."""
    return EvictedRequest(request_id, 0, 2, kv_tokens, "n0" if image is None else HANDED_OVER, image)


# --- who gives way --------------------------------------------------------------------------------------------------


def test_as_many_give_way_as_wait_in_the_head_group_and_are_replaced_at_once() -> None:
    """Between two steps: eviction and runs reach the engine together."""
    agent = make_full_agent()
    assert agent.handle(queue(("urgent", "a", 2), yielding=["g0", "g1"])) == [
        Tell(protocol.TakeOut(["r3", "r2"])),
        Pull("urgent", 2),
    ]
    runs: list[AgentAction] = [Tell(RunAttempt(payload_of("u0"))), Tell(RunAttempt(payload_of("u1")))]
    assert agent.handle(taken("urgent", 2, entry("u0"), entry("u1"))) == runs


def test_the_last_group_goes_first_and_of_a_group_the_request_that_was_pulled_last() -> None:
    agent = make_full_agent()
    assert agent.handle(queue(("urgent", "a", 9), yielding=["g1", "g0"])) == [
        Tell(protocol.TakeOut(["r4", "r1", "r0", "r3", "r2"])),
        Pull("urgent", 5),
    ]


def test_groups_that_do_not_yield_go_on() -> None:
    agent = make_full_agent()
    assert agent.handle(queue(("urgent", "a", 9), yielding=["g1"])) == [
        Tell(protocol.TakeOut(["r3", "r2"])),
        Pull("urgent", 2),
    ]


def test_nobody_gives_way_while_there_is_room() -> None:
    agent = make_full_agent()
    agent.handle(step(num_admittable=1, num_received=NUM_RECEIVED))
    assert agent.handle(queue(("urgent", "a", 2), yielding=["g0", "g1"])) == [Pull("urgent", 1)]


def test_only_those_give_way_that_the_rest_of_the_head_group_needs() -> None:
    agent = make_full_agent()
    agent.handle(step(num_admittable=1, num_received=NUM_RECEIVED))
    agent.handle(queue(("urgent", "a", 2), yielding=["g0", "g1"]))
    assert agent.handle(taken("urgent", 1, entry("u0"))) == [Tell(RunAttempt(payload_of("u0")))], (
        "room is not known yet"
    )
    assert agent.handle(step(num_received=NUM_RECEIVED + 1)) == [Tell(protocol.TakeOut(["r3"])), Pull("urgent", 1)]


def test_where_some_wait_in_the_engine_its_answer_is_awaited() -> None:
    """The room may be theirs; and it may take more than one to make room for one."""
    agent = make_full_agent()
    agent.handle(step(num_received=NUM_RECEIVED, num_waiting=1))
    assert agent.handle(queue(("urgent", "a", 1), yielding=["g0", "g1"])) == [Tell(protocol.TakeOut(["r3"]))]
    assert agent.handle(queue(("urgent", "a", 2), yielding=["g0", "g1"])) == [], "one eviction after the other"
    assert agent.handle(step(num_received=NUM_RECEIVED)) == []
    actions = agent.handle(evicted({"r3": 4}, num_received=NUM_RECEIVED))
    assert actions[1:] == [Tell(protocol.TakeOut(["r2", "r4"])), Pull("urgent", 2)], "there was no room in it"


def test_groups_yield_to_the_head_that_was_named_and_to_no_other() -> None:
    """Whether they stand behind the next one as well, only the queue manager knows."""
    agent = make_full_agent()
    agent.handle(step(num_admittable=1, num_received=NUM_RECEIVED))
    agent.handle(queue(("urgent", "a", 1), ("g2", "a", 4), yielding=["g0", "g1"]))
    agent.handle(taken("urgent", 1))
    assert agent.handle(step(num_received=NUM_RECEIVED)) == []


# --- other models ---------------------------------------------------------------------------------------------------


def test_a_change_of_model_evicts_all_and_loads_when_they_are_out() -> None:
    agent = make_full_agent()
    everyone = ["r3", "r2", "r4", "r1", "r0"]
    assert agent.handle(queue(("urgent", "b", 1), yielding=["g0", "g1"])) == [Tell(protocol.TakeOut(everyone))]
    assert agent.handle(step()) == []
    actions = agent.handle(evicted(dict.fromkeys(everyone, 4)))
    assert actions[-2:] == [Tell(LoadModel("b")), Beat(agent.heartbeat())]


def test_nobody_is_evicted_for_another_model_while_somebody_else_has_to_end_first() -> None:
    agent = make_full_agent()
    assert agent.handle(queue(("urgent", "b", 1), yielding=["g0"])) == []
    ends = [tokens("r2", 7, index=2, finish_reason="stop"), tokens("r3", 7, index=2, finish_reason="stop")]
    assert agent.handle(step(*ends))[-1] == Tell(protocol.TakeOut(["r4", "r1", "r0"]))


def test_a_model_on_the_device_becomes_the_current_one_beside_what_runs() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(loaded("b", tiers={"a": "device", "b": "device"}))
    agent.handle(step(num_admittable=2))
    agent.handle(queue(("g0", "b", 1)))
    agent.handle(taken("g0", 2, entry("r0", model="b")))
    assert agent.handle(queue(("g1", "a", 1), yielding=["g0"])) == [Tell(LoadModel("a"))]
    agent.handle(loaded("a", load_s=0.0, source="device", tiers={"a": "device", "b": "device"}))
    assert agent.handle(step(num_admittable=1, num_received=1)) == [Pull("g1", 1)]


# --- what becomes of them -------------------------------------------------------------------------------------------


def test_the_queue_manager_gets_them_back_with_what_is_kept_of_them() -> None:
    agent = make_yielding_agent("u0", "u1")
    assert agent.handle(evicted({"r3": 4, "r2": 0})) == [
        Publish(
            acks=[Ack("g1", b"r3-0"), Ack("g1", b"r2-0")],
            evicted=[gone("r3", kv_tokens=4), gone("r2", kv_tokens=0)],
        ),
    ]
    assert sorted(agent.running) == ["r0", "r1", "r4", "u0", "u1"]


def test_a_request_that_has_ended_meanwhile_is_not_given_back() -> None:
    agent = make_yielding_agent("u0", "u1")
    last = tokens("r3", 7, index=2, finish_reason="stop")
    (ended,) = agent.handle(step(last, num_received=NUM_RECEIVED))
    assert isinstance(ended, Publish)
    assert ended.finished == [FinishedRequest("r3", 0, "stop", 3)]
    assert agent.handle(evicted({"r2": 4})) == [Publish(acks=[Ack("g1", b"r2-0")], evicted=[gone("r2", kv_tokens=4)])]


def test_a_request_that_was_given_up_meanwhile_is_not_given_back() -> None:
    agent = make_yielding_agent("u0")
    assert agent.handle(Abort(requests=[attempt_of("r3")])) == [
        Tell(AbortRequests(["r3"])),
        Publish(acks=[Ack("g1", b"r3-0")]),
    ]
    assert agent.handle(evicted({"r3": 4})) == []


def test_a_newer_attempt_is_not_taken_for_the_one_that_was_evicted() -> None:
    agent = make_full_agent()
    agent.handle(queue(("urgent", "a", 1), yielding=["g1"]))
    agent.handle(taken("urgent", 1, entry("r3", 1)))
    assert agent.handle(evicted({"r3": 4})) == []
    assert agent.running["r3"].attempt == 1


def test_a_request_goes_on_where_it_was_and_its_tokens_are_counted_on() -> None:
    agent = make_yielding_agent("u0")
    agent.handle(evicted({"r3": 4}))
    agent.handle(queue(("resumed", "a", 1)))
    agent.handle(step(num_admittable=1, num_received=NUM_RECEIVED + 1))
    assert agent.handle(taken("resumed", 1, entry("r3", kv_at="n0"))) == [Tell(RunAttempt(payload_of("r3")))]
    (published,) = agent.handle(step(tokens("r3", 7, index=2, finish_reason="stop"), num_received=NUM_RECEIVED + 2))
    assert isinstance(published, Publish)
    assert published.finished == [FinishedRequest("r3", 0, "stop", 3)]
    assert published.acks == [Ack("resumed", b"r3-0")]


def test_what_is_computed_again_is_not_counted_twice() -> None:
    """KV that is gone means a run from the payload, under the same attempt."""
    agent = make_yielding_agent("u0")
    agent.handle(evicted({"r3": 4}))
    agent.handle(queue(("resumed", "a", 1)))
    agent.handle(taken("resumed", 1, entry("r3", kv_at="n0")))
    agent.handle(step(tokens("r3", 5, 6)))
    (published,) = agent.handle(step(tokens("r3", 7, index=2, finish_reason="stop")))
    assert isinstance(published, Publish)
    assert published.finished == [FinishedRequest("r3", 0, "stop", 3)]


def test_giving_up_a_parked_request_frees_its_kv() -> None:
    agent = make_yielding_agent("u0")
    agent.handle(evicted({"r3": 4}))
    other = attempt_of("r3", 1)
    assert agent.handle(Abort(requests=[other])) == [DropImages([other])], "another attempt"
    assert agent.handle(Abort(requests=[attempt_of("r3")])) == [Tell(AbortRequests(["r3"]))]
    again = agent.handle(Abort(requests=[attempt_of("r3")]))
    assert again == [DropImages([attempt_of("r3")])], "it is gone, or somewhere between the nodes"


# --- to another node ------------------------------------------------------------------------------------------------


def test_a_running_request_is_evicted_written_down_and_given_back_in_one_transaction() -> None:
    agent = make_full_agent()
    assert agent.handle(hand_over("r1")) == [Tell(protocol.TakeOut(["r1"]))]
    assert agent.handle(evicted({"r1": 4})) == [Tell(HandOverImages(["r1"]))]
    assert agent.handle(ImageHeld(attempt_of("r1"), TICKET)) == [
        Publish(acks=[Ack("g0", b"r1-0")], evicted=[gone("r1", 4, TICKET)]),
    ]


def test_a_parked_request_has_no_entry_to_acknowledge_any_more() -> None:
    agent = make_yielding_agent("u0")
    agent.handle(evicted({"r3": 4}))
    assert agent.handle(hand_over("r3")) == [Tell(HandOverImages(["r3"]))]
    assert agent.handle(ImageHeld(attempt_of("r3"), TICKET)) == [Publish(evicted=[gone("r3", 4, TICKET)])]


def test_a_request_that_gives_way_already_is_not_evicted_twice() -> None:
    agent = make_yielding_agent("u0")
    assert agent.handle(hand_over("r3")) == []
    assert agent.handle(evicted({"r3": 4}))[0] == Tell(HandOverImages(["r3"]))


@pytest.mark.parametrize("kv_tokens", [0, 4])
def test_kv_that_cannot_travel_is_told_as_lost(kv_tokens: int) -> None:
    """No room in host memory for what is kept, or for what is to be fetched."""
    agent = make_full_agent()
    agent.handle(hand_over("r1"))
    actions = agent.handle(evicted({"r1": kv_tokens}))
    if kv_tokens:
        actions = agent.handle(ImageHeld(attempt_of("r1"), None))
    assert actions == [Publish(acks=[Ack("g0", b"r1-0")], evicted=[gone("r1", kv_tokens=0)])]


def test_kv_that_is_of_no_use_elsewhere_is_dropped_and_the_request_given_back() -> None:
    agent = make_full_agent()
    assert agent.handle(hand_over("r1", drops_kv=True)) == [Tell(protocol.TakeOut(["r1"]))]
    assert agent.handle(evicted({"r1": 4})) == [
        Tell(AbortRequests(["r1"])),
        Publish(acks=[Ack("g0", b"r1-0")], evicted=[gone("r1", kv_tokens=0)]),
    ]
    parked = make_yielding_agent("u0")
    parked.handle(evicted({"r3": 4}))
    assert parked.handle(hand_over("r3", drops_kv=True)) == [
        Tell(AbortRequests(["r3"])),
        Publish(evicted=[gone("r3", kv_tokens=0)]),
    ]
    assert parked.inventory().parked == []


def test_what_is_not_here_or_was_said_to_another_epoch_is_not_answered() -> None:
    agent = make_full_agent()
    agent.handle(step(tokens("r0", 7, index=2, finish_reason="stop"), num_received=NUM_RECEIVED))
    assert agent.handle(hand_over("r0", "unknown")) == []
    assert agent.handle(hand_over("r1", attempt=1)) == []
    assert agent.handle(hand_over("r1", epoch="n0.0")) == []


def test_a_request_that_is_given_up_while_it_is_written_down_leaves_no_image() -> None:
    agent = make_full_agent()
    agent.handle(hand_over("r1"))
    agent.handle(evicted({"r1": 4}))
    assert agent.handle(Abort(requests=[attempt_of("r1")])) == [
        Tell(AbortRequests(["r1"])),
        Publish(acks=[Ack("g0", b"r1-0")]),
    ]
    assert agent.handle(ImageHeld(attempt_of("r1"), TICKET)) == [DropImages([attempt_of("r1")])]


def test_a_request_that_was_handed_over_is_run_with_its_image() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 2)))
    moved, elsewhere = entry("r0", kv_at=HANDED_OVER, image=TICKET), entry("r1", kv_at="n1")
    assert agent.handle(taken("g0", 2, moved, elsewhere)) == [
        Resume(payload_of("r0"), TICKET),
        Tell(RunAttempt(payload_of("r1"))),
    ]
    assert agent.handle(ImageFetched(payload_of("r0"), FILE, 0.1)) == [Tell(RunAttempt(payload_of("r0"), FILE))]
    assert agent.handle(ImageFetched(payload_of("r0"), FILE, 0.1)) == [DiscardImage(FILE)], "it runs already"


def make_fetching_agent(num_admittable: int = 2) -> AgentCore:
    """It has pulled r0, whose KV is on its way."""
    agent = make_agent("a", num_admittable=num_admittable)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 2, entry("r0", kv_at=HANDED_OVER, image=TICKET)))
    return agent


def test_others_begin_beside_one_whose_image_is_on_its_way_and_leave_room_for_it() -> None:
    agent = make_fetching_agent(num_admittable=3)
    assert agent.handle(queue(("g1", "a", 5))) == [Pull("g1", 2)]
    assert agent.handle(taken("g1", 2, entry("r1"))) == [Tell(RunAttempt(payload_of("r1")))]
    assert agent.handle(step(num_admittable=1, num_received=1)) == [], "the last place is its own"
    assert agent.awaits_step
    agent.handle(step(tokens("r1", 5, finish_reason="stop"), num_admittable=1, num_received=1))
    assert not agent.awaits_step, "the engine has nothing to say of it"


def test_an_image_that_is_lost_is_told_to_the_engine_which_ends_the_attempt() -> None:
    agent = make_fetching_agent()
    assert agent.handle(ImageFetched(payload_of("r0"), NO_IMAGE, 0.0)) == [Tell(RunAttempt(payload_of("r0"), NO_IMAGE))]


def test_a_request_that_is_given_up_is_fetched_no_more() -> None:
    agent = make_fetching_agent()
    assert agent.handle(Abort(requests=[attempt_of("r0")])) == [
        Tell(AbortRequests(["r0"])),
        Publish(acks=[Ack("g0", b"r0-0")]),
        StopFetch([attempt_of("r0")]),
    ]
    assert agent.handle(ImageFetched(payload_of("r0"), FILE, 0.1)) == [DiscardImage(FILE)], "it had come just before"


@pytest.mark.parametrize("message", [hand_over("r0"), Drain()])
def test_a_request_that_is_to_go_on_elsewhere_before_its_image_has_come_is_given_back(message: Evict | Drain) -> None:
    agent = make_fetching_agent()
    assert agent.handle(message)[:3] == [
        Tell(AbortRequests(["r0"])),
        Publish(acks=[Ack("g0", b"r0-0")], evicted=[EvictedRequest("r0", 0, 0, 0, "n0")]),
        StopFetch([attempt_of("r0")]),
    ]
    assert agent.running == {}


def test_who_is_not_in_the_engine_yet_does_not_give_way() -> None:
    agent = make_fetching_agent(num_admittable=1)
    assert agent.handle(queue(("urgent", "a", 1), yielding=["g0"])) == []
    assert agent.handle(ImageFetched(payload_of("r0"), FILE, 0.1))[0] == Tell(RunAttempt(payload_of("r0"), FILE))
    assert agent.handle(step(num_received=1))[0] == Tell(protocol.TakeOut(["r0"]))


def test_what_an_image_takes_tells_how_fast_the_network_is() -> None:
    agent = make_fetching_agent()
    agent.handle(ImageFetched(payload_of("r0"), ImageFile("/proc/1/fd/9", 8 << 20), 0.5))
    assert agent.heartbeat().facts.network_bytes_per_s == 16 << 20
    small = make_fetching_agent()
    small.handle(ImageFetched(payload_of("r0"), FILE, 0.5))
    assert small.heartbeat().facts.network_bytes_per_s == 0.0, "it tells of latency"


def test_a_request_whose_image_cannot_be_used_is_given_back_to_begin_anew_behind_its_tokens() -> None:
    """Its payload knows only of tokens of earlier attempts; its gateway writes another one."""
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 1)))
    agent.handle(taken("g0", 1, entry("r0", kv_at=HANDED_OVER, image=TICKET)))
    agent.handle(ImageFetched(payload_of("r0"), FILE, 0.1))
    lost = Chunk("r0", 0, 0, [], LOST, "its blocks are others", is_last=True)
    assert agent.handle(step(lost, num_admittable=2, num_received=1)) == [
        Publish(acks=[Ack("g0", b"r0-0")], evicted=[EvictedRequest("r0", 0, 0, 0, "n0")])
    ]
    assert agent.running == {}


# --- the end of the node --------------------------------------------------------------------------------------------


def test_a_node_that_stops_hands_over_what_runs_and_what_is_parked() -> None:
    agent = make_yielding_agent("u0")
    agent.handle(evicted({"r3": 4}))
    assert agent.handle(Drain()) == [
        Tell(protocol.TakeOut(["r0", "r1", "r2", "r4", "u0"])),
        Tell(HandOverImages(["r3"])),
    ]
    agent.handle(ImageHeld(attempt_of("r3"), TICKET))
    agent.handle(evicted({"r0": 4, "r1": 4, "r2": 0, "r4": 4, "u0": 0}))
    assert not agent.is_drained
    for name in ("r0", "r1", "r4"):
        agent.handle(ImageHeld(attempt_of(name), TICKET))
    assert agent.is_drained


def test_a_node_that_stops_takes_nothing_more() -> None:
    agent = make_agent("a", num_admittable=1)
    assert agent.handle(Drain()) == []
    assert agent.is_drained
    assert agent.handle(queue(("g0", "a", 1))) == []
    assert agent.handle(queue(("g0", "b", 1))) == []
