"""A look at idle devices costs as much for each of them as for the first: ten times a second, however many they are."""

from __future__ import annotations

import sys
from types import FrameType

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.plans.take_over import LOOK_S, MAX_DONORS
from shared.config.config import ClusterConfig
from shared.messages.message import Tick
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, Pulled, Submit
from shared.messages.requests.slo import Slo


def num_calls_of_a_look(num_nodes: int) -> int:
    """Half of the nodes are slow and busy, half idle; what the slowest run is on its way."""
    core, now = QueueManagerCore(ClusterConfig()), 1.0
    for number in range(num_nodes):
        start(core, number, step_s=0.05, now=now)
        name = f"r{number}"
        now += 0.01
        core.handle(
            Submit(
                request_id=name,
                gateway="gw",
                model="a",
                slo=Slo("batch", deadline_s=3600.0),
                prompt_tokens=8,
                max_tokens=2000,
            ),
            now,
        )
        request = core.state.requests[name]
        node = core.state.groups[request.group].node
        core.handle(Pulled(node=node, epoch="1", group=request.group, requests=[Attempt(name, 0)]), now)
    for number in range(num_nodes, 2 * num_nodes):
        start(core, number, step_s=0.001, now=now)
    core.handle(Tick(), now + LOOK_S)
    assert len(core.state.hand_overs) == MAX_DONORS
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        core.handle(Tick(), now + 3 * LOOK_S)
    finally:
        sys.setprofile(None)
    return calls


def start(core: QueueManagerCore, number: int, step_s: float, now: float) -> None:
    rate = ModelRate("a", StepCost(step_s, 1e-4, 0.0), kv_tokens=10_000, kv_token_bytes=16, load_s=0.0)
    core.handle(NodeUp(epoch="1", known=NodeState(f"n{number:03}", "a", max_num_seqs=4, rates=[rate])), now)


def test_four_times_the_nodes_are_about_four_times_the_work() -> None:
    assert num_calls_of_a_look(100) < 6 * num_calls_of_a_look(25)
