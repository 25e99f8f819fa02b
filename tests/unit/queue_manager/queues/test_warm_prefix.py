"""What a cached beginning of a prompt is worth: hand-computed."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.node import Node, Unread
from services.queue_manager.state.state import State
from services.scheduler.solving.problem.tables import make_instance
from shared.estimator.batching import batching
from shared.estimator.estimator import cold_s
from shared.messages.memory.blocks import WarmNode
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, PlacementProblem
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.prefixes.prefixes import PromptPrefix
from shared.messages.requests.slo import Slo

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


DOOR = KvDoor("http://n:1", "t")
DEAR = StepCost(0.05, 0.01, 0.0)
"""A token of a prompt takes 10 ms: 400 of them 4 s, and their 400 kB 0.4 s out of a device and 0.4 s into another."""


def giving(name: str, *, kv_format: str = "f", max_image_bytes: int | None = 1 << 20) -> NodeState:
    rate = ModelRate("a", DEAR, 0, 1_000, 1.0, kv_format=kv_format)
    return replace(known(name), rates=[rate], door=DOOR, max_image_bytes=max_image_bytes, network_bytes_per_s=1e6)


def replace_cost(rate: ModelRate, cost: StepCost) -> ModelRate:
    return dataclasses.replace(rate, cost=cost)


def fetching(*nodes: NodeState, has: tuple[WarmNode, ...] = (WarmNode("n0", 3, 1, 0),)) -> WarmPrefix:
    return WarmPrefix.of(PREFIX, has, nodes)


def test_what_another_node_has_is_fetched_where_that_is_quicker_by_far() -> None:
    """Question 20 ms, a step of the giver's 50 ms, 0.4 s each for copy, network and copy: 1.27 s, against 4 s."""
    warm = fetching(giving("n0"))
    fetch = warm.fetch_to(giving("n1"), "a")
    assert fetch is not None
    assert fetch.cost.fetch_s == pytest.approx(1.27)
    assert fetch.cost.compute_s == pytest.approx(4.0)
    assert fetch.source("a") == PrefixSource("n0", DOOR, 400, "f", fetch.cost.within_s)
    assert fetch.cost.within_s == pytest.approx(6.0)
    assert warm.tokens_for(giving("n1"), "a") == warm.load_at(LOAD, giving("n1")).found_tokens == 400
    assert warm.bring_in_s(giving("n1"), "a") == pytest.approx(1.27)
    assert (warm.fetch_to(giving("n0"), "a"), warm.tokens_for(giving("n0"), "a")) == (None, 400), "it is there"


@pytest.mark.parametrize(
    "taker",
    [
        giving("n1", kv_format="another"),
        giving("n1", kv_format=""),
        giving("n1", max_image_bytes=399_999),
        replace(giving("n1"), network_bytes_per_s=1e5),
        replace(giving("n1"), rates=[replace_cost(giving("n1").rates[0], RATE.cost)]),
        replace(giving("n1"), door=None),
    ],
    ids=["other blocks", "unknown blocks", "no room", "slow network", "cheap prompts", "no door"],
)
def test_else_it_is_computed(taker: NodeState) -> None:
    warm = fetching(giving("n0"))
    assert warm.fetch_to(taker, "a") is None
    assert (warm.tokens_for(taker, "a"), warm.bring_in_s(taker, "a")) == (0, 0.0)


def test_only_what_is_lacking_is_fetched_from_whom_it_gains_most() -> None:
    """An SSD is read by its own node alone: n2 gives two names, n0 three, and n1 has one."""
    has = (WarmNode("n0", 3), WarmNode("n1", 1), WarmNode("n2", 1, 1, 2))
    fetch = fetching(giving("n0"), giving("n1"), giving("n2"), has=has).fetch_to(giving("n1"), "a")
    assert fetch is not None
    assert (fetch.giver.node, fetch.num_tokens) == ("n0", 300)
    assert fetch.cost.compute_s == pytest.approx(2.0)


def test_a_node_without_a_door_gives_nothing() -> None:
    assert fetching(replace(giving("n0"), door=None)).givers == ()
    assert fetching().fetch_anywhere("a") is None


def test_few_nodes_are_looked_at_those_with_most() -> None:
    has = tuple(WarmNode(f"n{number}", number) for number in range(1, 7))
    warm = fetching(*(giving(one.node) for one in has), has=has)
    assert [node.node for node in warm.givers] == ["n6", "n5", "n4", "n3"]


def test_a_node_has_room_for_so_much_of_it_that_it_gives_at_a_time() -> None:
    """1 GiB of tokens of 2^22 bytes: 256."""
    big = ModelRate("a", DEAR, 0, 1 << 22, 1.0, kv_format="f")
    nodes = [replace(giving(name, max_image_bytes=1 << 30), rates=[big], kv_bytes_per_s=1e12) for name in ("n0", "n1")]
    fetch = fetching(replace(nodes[0], network_bytes_per_s=1e12)).fetch_to(
        replace(nodes[1], network_bytes_per_s=1e12), "a"
    )
    assert fetch is not None
    assert fetch.num_tokens == 256


def test_a_newcomer_begins_at_an_idle_node_that_fetches_its_prompt() -> None:
    """Where n0 has prompts of 2 s before it: 1.27 s and the rest's second are sooner than those and the rest."""
    nodes = {name: Node(node=name, epoch="1", known=giving(name)) for name in ("n0", "n1")}
    starts, slo = ImmediateStarts(State(nodes=nodes)), Slo("any", deadline_s=60.0)
    found = {}
    for unread_s in (0.0, 2.0):
        nodes["n0"].unread = Unread(until_s=unread_s)
        for name, warm in (("fetched", fetching(giving("n0"))), ("computed", fetching())):
            best = starts.best(LOAD, slo, warm)
            found[name, unread_s] = best.node if best is not None else ""
    assert found == {
        ("fetched", 0.0): "n0",
        ("computed", 0.0): "n0",
        ("fetched", 2.0): "n1",
        ("computed", 2.0): "n0",
    }


def test_a_group_that_goes_elsewhere_has_its_prompts_computed_again() -> None:
    """Three members, of each 400 tokens at 1 ms: 1.2 s."""
    load = replace(LOAD, group="g1", num_waiting=3, warm_at="n1", warm_tokens=400.0)
    assert cold_s(known("n1"), load) == 0.0
    assert cold_s(known("n0"), load) == pytest.approx(1.2)
    instance = make_instance(PlacementProblem(version=1, now_s=0.0, nodes=[known("n0"), known("n1")], groups=[load]))
    assert [node.setup_s[0] for node in instance.nodes] == [pytest.approx(1.2), 0.0]
    assert instance.nodes[0].work_s[0] == instance.nodes[1].work_s[0], "beside that, the work is the same"
