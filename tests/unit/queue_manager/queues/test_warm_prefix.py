"""What a cached beginning of a prompt is worth: hand-computed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.node import Node, Unread
from services.queue_manager.state.state import State
from services.scheduler.solving.tables import make_instance
from shared.estimator.batching import batching
from shared.estimator.estimator import cold_s
from shared.messages.blocks import WarmNode
from shared.messages.nodes import NodeState
from shared.messages.placement import GroupLoad, PlacementProblem
from shared.messages.prefixes import PromptPrefix
from shared.messages.slo import Slo
from shared.messages.step_cost import ModelRate, StepCost

PREFIX = PromptPrefix(100, [1, 2, 3, 4])
RATE = ModelRate("a", StepCost(0.05, 0.001, 0.0), kv_tokens=0, kv_token_bytes=1_000, load_s=1.0)
LOAD = GroupLoad(group="", model="a", deadline_s=20.0, num_waiting=1, mean_prompt_tokens=500.0, mean_output_tokens=1.0)


def known(name: str, *, cached_share: float = 0.0) -> NodeState:
    rate = ModelRate("a", RATE.cost, 0, 1_000, 1.0, cached_share)
    return NodeState(node=name, model="a", max_num_seqs=4, rates=[rate], device="cpu", kv_bytes_per_s=1e6)


def test_a_node_has_as_much_as_was_found_there() -> None:
    warm = WarmPrefix.of(PREFIX, [WarmNode("n0", 2, 1, 1), WarmNode("n1", 1)])
    assert [warm.tokens_at(name) for name in ("n0", "n1", "n2")] == [400, 100, 0]
    assert (warm.home(800), warm.home(801)) == ("n0", "")


def test_what_lies_below_the_device_has_to_come_in() -> None:
    """Two names of 100 tokens of 1,000 bytes come from host memory at 1 MB/s, one of them from the SSD at 2 GB/s."""
    warm = WarmPrefix.of(PREFIX, [WarmNode("n0", 2, 1, 1)])
    assert warm.bring_in_s(known("n0"), "a") == pytest.approx(0.2 + 0.00005)
    assert warm.bring_in_s(known("n1"), "a") == 0.0


def test_only_the_rest_of_a_prompt_is_computed_whatever_is_found_on_average() -> None:
    assert batching(known("n0"), replace(LOAD, found_tokens=400.0)).prompt_tokens == 100.0
    assert batching(known("n0", cached_share=0.5), LOAD).prompt_tokens == 250.0
    assert batching(known("n0", cached_share=0.5), replace(LOAD, found_tokens=0.0)).prompt_tokens == 500.0


def best(warm: WarmPrefix | None, *, unread_s: float = 0.0) -> str:
    nodes = {name: Node(node=name, epoch="1", known=known(name)) for name in ("n0", "n1")}
    nodes["n1"].unread = Unread(until_s=unread_s)
    node = ImmediateStarts(State(nodes=nodes)).best(LOAD, Slo("any", deadline_s=20.0), warm)
    return node.node if node is not None else ""


def test_a_newcomer_begins_where_its_prompt_is_unless_it_waits_longer_there() -> None:
    """500 rows of 1 ms at n0, 100 at n1: 0.4 s less. Nothing else differs but the prompts before it."""
    warm = WarmPrefix.of(PREFIX, [WarmNode("n1", 4)])
    assert (best(None), best(warm)) == ("n0", "n1")
    assert best(warm, unread_s=0.39) == "n1"
    assert best(warm, unread_s=0.41) == "n0"


def test_a_group_that_goes_elsewhere_has_its_prompts_computed_again() -> None:
    """Three members, of each 400 tokens at 1 ms: 1.2 s."""
    load = replace(LOAD, group="g1", num_waiting=3, warm_at="n1", warm_tokens=400.0)
    assert cold_s(known("n1"), load) == 0.0
    assert cold_s(known("n0"), load) == pytest.approx(1.2)
    instance = make_instance(PlacementProblem(version=1, now_s=0.0, nodes=[known("n0"), known("n1")], groups=[load]))
    assert [node.setup_s[0] for node in instance.nodes] == [pytest.approx(1.2), 0.0]
    assert instance.nodes[0].work_s[0] == instance.nodes[1].work_s[0], "beside that, the work is the same"
