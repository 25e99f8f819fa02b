"""The queue manager over any inbox whatever, in any order: the books agree after every message, nothing is sent to a
stream that was dropped, and a core restored from a snapshot goes on exactly as the one that was snapshot.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.queue_manager import invariants
from services.queue_manager.core import QueueManagerCore
from services.queue_manager.state.grouping import LEAST_BATCH
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool
from shared.config.services.clients import SloClass
from shared.config.services.queue import QueueOptions
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeDown, NodeState, NodeUp
from shared.messages.nodes.placement import Plan
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.inventories import GatewayInventory, NodeInventory
from shared.messages.requests.requests import (
    HANDED_OVER,
    Attempt,
    Cancel,
    Enqueued,
    Evicted,
    EvictedRequest,
    Finished,
    FinishedRequest,
    GatewayBeat,
    GatewayGone,
    Pulled,
    Submit,
)
from shared.messages.requests.slo import Slo
from shared.service.core import Drop, Send

CONFIG = ClusterConfig(
    queue=QueueOptions(delta=2 / LEAST_BATCH),  # groups of two
    slo_classes={"interactive": SloClass(deadline_s=20, late="refuse"), "batch": SloClass(deadline_s=3600)},
)
POOLED = CONFIG.model_copy(update={"pools": [NodePool(name="p")]})
RATES = [ModelRate(model, StepCost(0.5, 0.01, 0.0001), 1000, 16, 1.0) for model in ("a", "b")]


def _request_id(attempt: Attempt) -> str:
    return attempt.request_id


requests = st.sampled_from([f"r{number}" for number in range(6)])
gateways = st.sampled_from(["gw0", "gw1"])
nodes = st.sampled_from(["n0", "n1"])
epochs = st.sampled_from(["1", "2"])
models = st.sampled_from(["a", "b"])
groups = st.sampled_from([f"g{number}" for number in range(6)])
attempts = st.builds(Attempt, requests, st.integers(0, 2))
ends = st.builds(FinishedRequest, requests, st.integers(0, 2), st.sampled_from(["stop", "error"]), st.integers(0, 50))
evictions = st.builds(
    EvictedRequest,
    requests,
    st.integers(0, 2),
    st.integers(0, 20),
    st.sampled_from([0, 12]),
    st.sampled_from(["n0", "n1", HANDED_OVER]),
)
slos = st.sampled_from([Slo("interactive", deadline_s=20.0), Slo("batch", deadline_s=3600.0)])

messages = st.one_of(
    st.builds(
        Submit,
        request_id=requests,
        gateway=gateways,
        model=models,
        slo=slos,
        prompt_tokens=st.just(5),
        max_tokens=st.integers(1, 50),
        attempt=st.integers(0, 2),
        wants_place=st.booleans(),
    ),
    st.builds(Cancel, request_id=requests),
    st.builds(Pulled, node=nodes, epoch=epochs, group=groups, requests=st.lists(attempts, min_size=1, max_size=3)),
    st.builds(Finished, node=nodes, epoch=epochs, requests=st.lists(ends, min_size=1, max_size=3)),
    st.builds(Evicted, node=nodes, epoch=epochs, requests=st.lists(evictions, min_size=1, max_size=3)),
    st.builds(
        NodeUp,
        epoch=epochs,
        known=st.builds(
            NodeState,
            node=nodes,
            model=st.sampled_from(["", "a", "b"]),
            max_num_seqs=st.just(2),
            rates=st.sampled_from([[], RATES]),
        ),
    ),
    st.builds(NodeDown, node=nodes, epoch=epochs, has_crashed=st.booleans(), blamed=st.lists(attempts, max_size=1)),
    st.builds(
        NodeInventory,
        node=nodes,
        epoch=epochs,
        running=st.lists(attempts, max_size=3, unique_by=_request_id),
        parked=st.lists(attempts, max_size=3, unique_by=_request_id),
        above=st.sampled_from(["", "r1"]),
        upto=st.sampled_from(["", "r3"]),
    ),
    st.builds(
        GatewayInventory,
        gateway=gateways,
        number=st.integers(1, 2),
        requests=st.lists(attempts, max_size=4, unique_by=_request_id),
        above=st.sampled_from(["", "r1"]),
        upto=st.sampled_from(["", "r3"]),
    ),
    st.builds(
        Plan,
        version=st.integers(0, 6),
        queues=st.dictionaries(nodes, st.lists(groups, max_size=4, unique=True), max_size=2),
    ),
    st.builds(GatewayBeat, gateway=gateways, inventory=st.integers(0, 2)),
    st.builds(GatewayGone, gateway=gateways),
    st.just(Tick()),
)
inboxes = st.lists(st.tuples(st.sampled_from([0.0, 0.02, 1.0, 6.0]), messages), max_size=30)


@settings(max_examples=300, deadline=None)
@given(inboxes, st.sampled_from([CONFIG, POOLED]))
def test_the_books_agree_and_a_restored_core_answers_the_same(
    inbox: list[tuple[float, AnyMessage]], config: ClusterConfig
) -> None:
    core, restored = QueueManagerCore(config), QueueManagerCore(config)
    now = 1.0
    for wait_s, message in inbox:
        now += wait_s
        effects = core.handle(message, now)
        assert restored.handle(message, now) == effects
        invariants.check(core.state)
        snapshot = core.snapshot()
        assert restored.snapshot() == snapshot
        restored.restore(snapshot)
        assert (restored.state, restored.wake_at) == (core.state, core.wake_at)
        assert restored.snapshot() == snapshot  # its order, too


@settings(max_examples=200, deadline=None)
@given(inboxes)
def test_a_group_stream_that_was_dropped_is_not_written_again(inbox: list[tuple[float, AnyMessage]]) -> None:
    core = QueueManagerCore(CONFIG)
    now = 1.0
    open_streams: set[str] = set()
    dropped: set[str] = set()
    for wait_s, message in inbox:
        now += wait_s
        for effect in core.handle(message, now):
            if isinstance(effect, Send) and isinstance(effect.message, Enqueued):
                assert effect.stream not in dropped
                open_streams.add(effect.stream)
            elif isinstance(effect, Drop) and effect.key.startswith("treadle:group:"):
                open_streams.remove(effect.key)
                dropped.add(effect.key)
        assert open_streams == {f"treadle:group:{gid}" for gid in core.state.groups}


@settings(max_examples=200, deadline=None)
@given(inboxes)
def test_every_attempt_is_enqueued_once(inbox: list[tuple[float, AnyMessage]]) -> None:
    """Unless it was evicted in between, or the request ended and its name was used again."""
    core = QueueManagerCore(CONFIG)
    now = 1.0
    enqueued: set[tuple[str, int]] = set()
    for wait_s, message in inbox:
        now += wait_s
        if isinstance(message, Evicted):
            enqueued -= {(evicted.request_id, evicted.attempt) for evicted in message.requests}
        for effect in core.handle(message, now):
            if isinstance(effect, Send) and isinstance(effect.message, Enqueued):
                attempt = (effect.message.request_id, effect.message.attempt)
                assert attempt not in enqueued
                enqueued.add(attempt)
        enqueued = {(name, attempt) for name, attempt in enqueued if name in core.state.requests}


@settings(max_examples=100, deadline=None)
@given(inboxes)
def test_when_everybody_has_left_nothing_remains(inbox: list[tuple[float, AnyMessage]]) -> None:
    core = QueueManagerCore(CONFIG)
    now = 1.0
    for wait_s, message in inbox:
        now += wait_s
        core.handle(message, now)
    for gateway in ("gw0", "gw1"):
        core.handle(GatewayGone(gateway=gateway), now)
    for node in ("n0", "n1"):
        for epoch in ("1", "2"):
            core.handle(NodeDown(node=node, epoch=epoch), now)
    state = core.state
    assert (state.requests, state.groups, state.nodes, state.open_groups) == ({}, {}, {}, {})
    assert (state.watching, state.hand_overs, state.plan.late, state.plan.touched, state.plan.checking) == ({},) * 5
    assert state.gateways.heard_s == {}
