"""What a node tells that cannot be ends at the scheduler: no request waits, or is lost, for what another node says."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from services.scheduler.credible import LEAST_STEP_S, MOST_COUNT, MOST_S, credible
from shared.config.config import ClusterConfig
from shared.messages.message import Tick
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeUp
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost
from shared.messages.requests.requests import Enqueued, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Send

RATE = ModelRate("a", StepCost(0.01, 1e-4, 1e-7), kv_tokens=1000, kv_token_bytes=16, load_s=1.0)
FACTS = NodeFacts(
    max_num_seqs=8, step_tokens=256, kv_bytes_per_s=1e9, network_bytes_per_s=1e9, swap_s=1.0, rates=[RATE]
)

floats = st.sampled_from([0.0, 1e-308, 1e-9, 0.5, 1.0, 3.0, 1e6, 1e15, 1e308, -1.0, inf, -inf, nan])
counts = st.sampled_from([0, 1, 100, -1, 1 << 48, 1 << 62, -(1 << 62)])
costs = st.builds(StepCost, floats, floats, floats, floats, floats)
yields = st.builds(DecodeYield, floats, floats)
rates = st.builds(
    ModelRate, st.just("a"), costs, counts, counts, floats, cached_share=floats, decode=yields, step_tokens=counts
)
facts = st.builds(
    NodeFacts,
    max_num_seqs=counts,
    step_tokens=counts,
    kv_bytes_per_s=floats,
    network_bytes_per_s=floats,
    max_image_bytes=counts,
    swap_s=floats,
    rates=st.lists(rates, max_size=1),
)


def beat(node: str, told: NodeFacts) -> Heartbeat:
    return Heartbeat(
        node=node, epoch=node, facts=told, model="a", num_blocks=9, num_free_blocks=9, num_running=0, num_waiting=0
    )


def test_what_can_be_is_told_as_it_is() -> None:
    slow = replace(RATE, cost=StepCost(MOST_S, 0.0, 0.0), kv_tokens=MOST_COUNT)
    fast = replace(RATE, cost=StepCost(0.0, LEAST_STEP_S, 0.0), kv_tokens=0)
    for told in (FACTS, NodeFacts(), NodeFacts(rates=[slow]), NodeFacts(rates=[fast])):
        assert credible(told) == (told, [])


@pytest.mark.parametrize("number", [nan, inf, -1.0, 2 * MOST_S])
def test_a_rate_with_a_number_that_cannot_be_counts_as_not_measured(number: float) -> None:
    lie = replace(RATE, cost=replace(RATE.cost, context_token_s=number))
    assert credible(NodeFacts(rates=[lie, RATE])) == (NodeFacts(rates=[RATE]), ["rates: a"])


@pytest.mark.parametrize(
    "decode", [DecodeYield(1.0, 0.0), DecodeYield(2.0, 3.0), DecodeYield(nan, 1.0), DecodeYield(inf, 1.0)]
)
def test_a_sequence_gets_a_token_of_a_step_and_no_more_than_it_has_rows(decode: DecodeYield) -> None:
    assert credible(NodeFacts(rates=[replace(RATE, decode=decode)])) == (NodeFacts(), ["rates: a"])
    assert credible(NodeFacts(rates=[replace(RATE, decode=DecodeYield(3.0, 2.5))]))[1] == []


def test_a_step_takes_some_time() -> None:
    assert credible(NodeFacts(rates=[replace(RATE, cost=StepCost(0.0, 0.0, 1.0))])) == (NodeFacts(), ["rates: a"])


@pytest.mark.parametrize(
    ("name", "lie", "counts_as"),
    [
        ("max_num_seqs", -1, 0),
        ("step_tokens", 1 << 62, 0),
        ("kv_bytes_per_s", nan, 0.0),
        ("network_bytes_per_s", 1e-308, 0.0),
        ("swap_s", -inf, 0.0),
        ("max_image_bytes", -1, None),
    ],
)
def test_a_number_of_the_node_that_cannot_be_counts_as_not_told(name: str, lie: Any, counts_as: Any) -> None:
    found, doubted = credible(NodeFacts(**{name: lie}))
    assert (getattr(found, name), doubted) == (counts_as, [name])


def test_an_operator_sees_what_is_doubted() -> None:
    core = SchedulerCore(ClusterConfig())
    core.handle(beat("n0", NodeFacts(swap_s=nan)), 1.0)
    nodes: Any = core.describe()["nodes"]
    assert nodes["n0"]["doubted"] == ["swap_s"]


@settings(max_examples=150, deadline=None)
@given(facts)
def test_whatever_a_node_tells_requests_are_taken_and_have_a_place(lies: NodeFacts) -> None:
    """Before, an entry on which the queue manager raised went to the dead letters: a request that nobody answered."""
    scheduler, queue = SchedulerCore(ClusterConfig()), QueueManagerCore(ClusterConfig())
    for name, told in (("honest", FACTS), ("liar", lies)):
        for effect in scheduler.handle(beat(name, told), 1.0):
            if isinstance(effect, Send) and isinstance(effect.message, NodeUp):
                queue.handle(effect.message, 1.0)
    for number in range(3):
        submit = Submit(
            request_id=f"r{number}",
            gateway="gw",
            model="a",
            slo=Slo("interactive", deadline_s=20.0),
            prompt_tokens=50,
            max_tokens=100,
        )
        effects = queue.handle(submit, 1.0 + number)
        assert any(isinstance(effect, Send) and isinstance(effect.message, Enqueued) for effect in effects)
    queue.handle(Tick(), 5.0)
    scheduler.restore(scheduler.snapshot())
    queue.restore(queue.snapshot())
