"""Requests whose prompts are computed at one node and whose tokens are drawn at another, whoever comes and goes."""

from __future__ import annotations

from random import Random

import pytest

from services.queue_manager.plans.planning import IDLE_S, LEISURE_S
from services.queue_manager.state.grouping import LEAST_BATCH
from shared.config.config import ClusterConfig
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import Phases
from shared.messages.nodes.placement import ModelLoad
from shared.messages.requests.requests import HANDED_OVER, Attempt
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.world import World, WorldNode

CONFIG = ClusterConfig(queue=QueueOptions(delta=4 / LEAST_BATCH))  # groups of four
SLO = Slo("interactive", deadline_s=20.0)
MAX_ROUNDS = 60
ACTS = ["submit", "handle", "read", "pull", "pull", "hand on", "hand on", "drop", "die", "start", "plan", "load"]


def begin(**phases: Phases) -> World:
    """A world of nodes with one model, by name."""
    world = World(CONFIG)
    for name, one in phases.items():
        world.start(name, "a", "x", phases=one)
    world.settle()
    return world


def windows(world: World) -> dict[str, int]:
    """How many wait at each node for it to pull."""
    return {name: sum(len(world.entries.get(gid, [])) for gid in node.window) for name, node in world.nodes.items()}


def pull_all(world: World, node: WorldNode) -> None:
    for gid in list(node.window):
        world.pull(node, gid, 64)
    world.settle()


def test_fresh_requests_go_to_nodes_that_prefill_and_those_with_kv_to_nodes_that_decode() -> None:
    world = begin(p="prefill", d="decode")
    for number in range(3):
        world.submit(f"r{number}", "a", SLO)
        world.settle()
    assert windows(world) == {"p": 3, "d": 0}
    pull_all(world, world.nodes["p"])
    world.hand_on(world.nodes["p"], "r0")
    world.hand_on(world.nodes["p"], "r1")
    world.settle()
    assert windows(world) == {"p": 0, "d": 2}
    assert {entry.kv_at for gid in world.nodes["d"].window for entry in world.entries[gid]} == {HANDED_OVER}


def test_a_node_that_only_prefills_is_told_what_others_decode_and_the_others_are_told_nothing() -> None:
    world = begin(p="prefill")
    assert world.nodes["p"].decoded_elsewhere == []
    world.start("d", "a", "x", phases="decode")
    world.start("other", "b", "x")
    world.settle()
    told = {name: node.decoded_elsewhere for name, node in world.nodes.items()}
    assert told == {"p": ["a", "b"], "d": [], "other": []}
    world.die("d")
    world.settle()
    assert world.nodes["p"].decoded_elsewhere == ["b"]


def test_each_goes_on_where_it_costs_least() -> None:
    """Two places at each node: two requests, of one group, go to two nodes."""
    world = begin(p="prefill", d0="decode", d1="decode")
    for name in ("r0", "r1"):
        world.submit(name, "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    for name in ("r0", "r1"):
        world.hand_on(world.nodes["p"], name)
        world.settle()
    assert windows(world) == {"p": 0, "d0": 1, "d1": 1}


def test_without_a_node_of_a_phase_the_other_one_takes_both() -> None:
    world = begin(p="prefill", d="decode")
    world.submit("r0", "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    world.die("d")
    world.settle()
    world.hand_on(world.nodes["p"], "r0")  # it had not heard yet
    world.settle()
    assert windows(world) == {"p": 1}
    world.start("d", "a", "x", phases="decode")
    world.die("p")
    world.submit("r1", "a", SLO)
    world.settle()
    assert windows(world) == {"d": 2}
    assert world.attempts == {"r0": 0, "r1": 0}, "the image is gone, as the node will find"


def test_a_request_that_a_node_has_lost_begins_where_prompts_are_computed() -> None:
    world = begin(p="prefill", d="decode")
    world.submit("r0", "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    world.hand_on(world.nodes["p"], "r0")
    world.settle()
    pull_all(world, world.nodes["d"])
    world.evict(world.nodes["d"], "r0", 0)  # its image did not come
    world.settle()
    assert (world.attempts, windows(world)) == ({"r0": 1}, {"p": 1, "d": 0})


@pytest.mark.parametrize("ends", ["taker dies", "client leaves"])
def test_kv_that_a_node_has_yet_to_fetch_is_given_up_with_its_request(ends: str) -> None:
    world = begin(p="prefill", d="decode")
    world.submit("r0", "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    world.hand_on(world.nodes["p"], "r0")
    world.settle()
    image = world.images.copy()
    assert image == {("p", Attempt("r0", 0))}
    pull_all(world, world.nodes["d"])
    world.images |= image  # it is on its way
    if ends == "taker dies":
        world.die("d")
    else:
        world.cancel("r0")
    world.settle()
    assert world.images == set()


def test_to_a_node_that_is_to_load_another_model_nothing_is_sent_any_more() -> None:
    world = begin(p="prefill", d="decode")
    world.submit("r0", "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    world.hand_on(world.nodes["p"], "r0")
    world.settle()
    pull_all(world, world.nodes["d"])
    world.plan({}, ModelLoad("d", "b"))
    world.settle()
    assert (world.nodes["d"].awaits, world.nodes["p"].decoded_elsewhere) == ("b", [])
    world.plan({})
    world.settle()
    assert world.nodes["d"].awaits == "b", "r0 runs there yet"
    world.finish(world.nodes["d"], "r0")
    world.load("d", "b", 5.0)
    world.settle()
    assert (world.core.state.nodes["d"].awaits, world.nodes["p"].decoded_elsewhere) == ("", [])
    world.load("d", "b")
    world.settle()
    assert world.nodes["p"].decoded_elsewhere == ["b"]


def test_what_was_on_its_way_there_is_decoded_before_the_load() -> None:
    world = begin(p="prefill", d="decode")
    world.submit("r0", "a", SLO)
    world.settle()
    pull_all(world, world.nodes["p"])
    world.plan({}, ModelLoad("d", "b"))
    world.hand_on(world.nodes["p"], "r0")  # it had not heard yet
    world.settle()
    assert (windows(world), world.nodes["d"].awaits) == ({"p": 0, "d": 1}, "b")


def test_a_plan_is_asked_for_where_a_prompt_is_taken_that_no_node_decodes() -> None:
    """Of b, p computes the prompt; d has a, and nothing to do."""
    world = World(CONFIG)
    world.start("p", "b", "x", phases="prefill")
    world.start("d", "a", "x", phases="decode")
    world.settle()
    world.submit("r0", "b", SLO)
    world.settle()
    plan = world.core.state.plan
    while plan.asked_at_s is not None:  # for nodes that came
        world.plan({})
        world.settle()
    assert (plan.asked_at_s, world.nodes["p"].decoded_elsewhere) == (None, ["a"])
    world.wait(IDLE_S)
    assert plan.asked_at_s is None, "nobody is decoded"
    pull_all(world, world.nodes["p"])
    assert plan.asked_at_s == pytest.approx(world.now, abs=0.01)
    assert plan.asked_running == ["g0"]
    world.plan({}, ModelLoad("d", "b"))
    world.settle()
    assert (plan.asked_at_s, world.nodes["d"].awaits) == (None, "b")
    world.wait(2 * LEISURE_S)
    assert plan.asked_at_s is None, "it is on its way"


@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_and_goes_each_request_is_answered(seed: int) -> None:
    kinds: dict[str, Phases] = {"p0": "prefill", "p1": "prefill", "d0": "decode", "b": "both"}
    world, chance = begin(**kinds), Random(seed)
    for _ in range(200):
        act(world, kinds, chance)
    end(world, kinds)


def act(world: World, kinds: dict[str, Phases], chance: Random) -> None:
    nodes = list(world.nodes.values())
    busy = [(node, name) for node in nodes for name in node.running]
    match chance.choice(ACTS):
        case "submit":
            world.submit(f"r{len(world.submits)}", "a", SLO)
        case "handle" if world.inbox:
            world.handle()
        case "read" if any(node.inbox for node in nodes):
            world.read(chance.choice([node for node in nodes if node.inbox]))
        case "pull" if any(node.window for node in nodes):
            node = chance.choice([node for node in nodes if node.window])
            world.pull(node, chance.choice(node.window), 2)
        case "hand on" if busy:
            node, name = chance.choice(busy)
            if node.decoded_elsewhere:
                world.hand_on(node, name)
        case "drop" if busy and chance.random() < 0.3:
            world.evict(*chance.choice(busy), 0)
        case _ as other:
            change(world, kinds, chance, other)


def change(world: World, kinds: dict[str, Phases], chance: Random, what: str) -> None:
    """Of nodes and their models."""
    nodes = list(world.nodes.values())
    match what:
        case "plan":
            world.plan({}, *(ModelLoad(node.name, chance.choice("ab")) for node in nodes if chance.random() < 0.5))
        case "load":
            load_awaited(world)
        case "die" if nodes and chance.random() < 0.2:
            world.die(chance.choice(nodes).name)
        case "start":
            for name in kinds.keys() - world.nodes.keys():
                world.start(name, "a", "x", phases=kinds[name])


def load_awaited(world: World) -> None:
    """Nodes that are to load a model, and have nothing else to do, have loaded it."""
    for node in world.nodes.values():
        if node.awaits and not node.running:
            world.load(node.name, node.awaits)


def end(world: World, kinds: dict[str, Phases]) -> None:
    for name in sorted(kinds.keys() - world.nodes.keys()):
        world.start(name, "a", "x", phases=kinds[name])
    for name in world.nodes:
        world.load(name, "a")
    for _ in range(MAX_ROUNDS):
        world.settle()
        world.wait(31.0)
        for node in world.nodes.values():
            for gid in list(node.window):
                world.pull(node, gid, 64)
            for name in list(node.running):
                if node.decoded_elsewhere:
                    world.hand_on(node, name)
                    continue
                if world.attempts.get(name) == node.running[name]:
                    del world.attempts[name]
                world.finish(node, name)
        if not world.core.state.requests:
            break
    world.settle()
    assert world.attempts == {}, "a client waits for ever"
    assert world.entries == {}, "a stream was left behind"
    assert world.images == set(), "an image that nobody fetches"
