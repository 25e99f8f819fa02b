"""Nodes that follow the load are told what to serve until they say so; what waits there goes where it is served."""

from __future__ import annotations

from random import Random

import pytest

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.handlers.load_phases import LOOK_S
from services.queue_manager.state.grouping import LEAST_BATCH
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import QueueOptions
from shared.messages.message import Tick
from shared.messages.nodes.nodes import NodeDown, NodeState, Phases, Serve
from shared.messages.requests.slo import Slo
from shared.service.core import Send
from tests.unit.queue_manager.world import World

CONFIG = ClusterConfig(
    queue=QueueOptions(delta=4 / LEAST_BATCH),  # groups of four
    nodes=[NodeSpec(name=name, phases="auto") for name in ("a", "b")],
)
SLO = Slo("interactive", ttft_s=1.0, tpot_s=0.012)
MAX_ROUNDS = 60


def begin(**phases: Phases) -> World:
    """Nodes that follow the load, with one model, as they serve at first."""
    world = World(CONFIG)
    for name, one in phases.items():
        world.start(name, "m", "x", phases=one, follows_load=True)
    world.settle()
    return world


def submit(world: World, num_requests: int, first: int = 0) -> list[str]:
    names = [f"r{number}" for number in range(first, first + num_requests)]
    for name in names:
        world.submit(name, "m", SLO)
        world.settle()
    return names


def told(world: World) -> dict[str, Phases]:
    return {node.node: node.phases for node in world.core.state.nodes.values()}


def waiting(world: World) -> dict[str, int]:
    state = world.core.state
    return {name: sum(state.groups[gid].num_waiting for gid in node.queue) for name, node in state.nodes.items()}


def test_what_is_no_split_is_told_to_end_and_told_again_until_the_node_says_so() -> None:
    world = begin(a="decode", b="decode")
    world.submit("r0", "m", SLO)
    first = [world.do(world.inbox.popleft())]
    for _ in range(2):
        world.now += LOOK_S
        first.append(world.do(Tick()))
    sent = [[one.message for one in effects if isinstance(one, Send)] for effects in first]
    orders = [[message for message in each if isinstance(message, Serve)] for each in sent]
    assert orders[0]
    assert orders == [orders[0]] * 3
    assert all(message.epoch == world.nodes[message.node].epoch for message in orders[0])
    world.settle()
    assert {name: node.phases for name, node in world.nodes.items()} == told(world)
    world.now += LOOK_S
    assert not any(isinstance(one, Send) and isinstance(one.message, Serve) for one in world.do(Tick()))


def test_nobody_is_told_anything_while_nobody_is_here() -> None:
    world = begin(a="decode", b="decode")
    world.now += 10 * LOOK_S
    assert not any(isinstance(one, Send) and isinstance(one.message, Serve) for one in world.do(Tick()))
    assert not any(node.inbox for node in world.nodes.values())


def test_a_node_that_is_configured_is_never_told() -> None:
    world = World(CONFIG)
    world.start("a", "m", "x", phases="decode")
    world.start("b", "m", "x", phases="decode")
    world.settle()
    submit(world, 3)
    assert told(world) == {"a": "decode", "b": "decode"}
    assert world.core.state.phase_gains == {}


def test_prompts_that_wait_at_a_node_that_decodes_from_now_on_go_to_one_that_prefills() -> None:
    world = begin(a="both", b="both")
    names = submit(world, 8)
    assert waiting(world) == {"a": 4, "b": 4}
    world.turn(world.nodes["a"], "prefill")
    world.turn(world.nodes["b"], "decode")
    world.settle()
    assert waiting(world) == {"a": 8, "b": 0}
    assert set(names) == world.core.state.requests.keys()


def test_members_that_wait_beside_others_that_run_are_submitted_again_and_go_there_too() -> None:
    world = begin(a="both", b="both")
    submit(world, 8)
    node = world.nodes["b"]
    world.pull(node, node.window[0], 1)
    world.settle()
    (runs,) = node.running
    world.turn(world.nodes["a"], "prefill")
    world.turn(node, "decode")
    world.settle()
    assert waiting(world) == {"a": 7, "b": 0}
    assert list(node.running) == [runs], "what runs ends there"
    assert sorted(world.attempts.values()) == [0] * 7 + [1], "of the others, those that had not begun move as they are"


def test_kv_that_waits_at_a_node_that_prefills_from_now_on_goes_to_one_that_decodes() -> None:
    world = begin(a="prefill", b="decode")
    world.start("c", "m", "x", phases="both", follows_load=True)
    world.settle()
    submit(world, 2)
    for name, node in world.nodes.items():
        for gid in list(node.window):
            world.pull(node, gid, 4)
        world.settle()
        for request in list(node.running) if name == "a" else []:
            world.hand_on(node, request)
    world.settle()
    handed = [group for group in world.core.state.groups.values() if group.kv_at]
    at = {group.node for group in handed if group.waiting}
    assert at
    for name in at:
        world.turn(world.nodes[name], "prefill")
    world.settle()
    places = {group.node for group in world.core.state.groups.values() if group.kv_at and group.waiting}
    assert all(world.nodes[name].phases != "prefill" for name in places)


def test_a_new_epoch_begins_with_both_and_is_told_anew() -> None:
    world = begin(a="prefill", b="decode")
    submit(world, 2)
    world.die("b")
    world.settle()
    world.wait(LOOK_S)
    world.settle()
    assert told(world) == {"a": "both"}, "alone, it does all of it"
    world.turn(world.nodes["a"], "prefill")
    world.start("b", "m", "x", follows_load=True)
    for _ in range(2):
        world.settle()
        world.wait(LOOK_S)
    assert {name: node.phases for name, node in world.nodes.items()} == told(world), "whatever it was told before"


def test_nodes_that_have_no_use_for_each_others_kv_do_both() -> None:
    world = World(CONFIG)
    for name, kv_format in (("a", "x"), ("b", "y")):
        world.start(name, "m", kv_format, phases="decode", follows_load=True)
    world.settle()
    submit(world, 1)
    assert told(world) == {"a": "both", "b": "both"}


def test_a_snapshot_has_all_of_it() -> None:
    world = begin(a="decode", b="decode")
    submit(world, 2)
    core = QueueManagerCore(CONFIG)
    core.restore(world.core.snapshot())
    assert core.state == world.core.state
    assert core.state.phase_changes


def test_a_queue_manager_that_has_lost_everything_takes_the_nodes_at_their_word() -> None:
    core = QueueManagerCore(CONFIG)
    known = NodeState("a", "m", phases="prefill", follows_load=True)
    world = World(CONFIG)
    world.core = core
    world.start("a", "m", "x", phases="prefill", follows_load=True)
    world.settle()
    assert core.state.nodes["a"].phases == known.phases
    core.handle(NodeDown(node="a", epoch=world.nodes["a"].epoch), 2.0)
    assert core.state.nodes == {}


@pytest.mark.parametrize("seed", range(40))
def test_whoever_turns_comes_and_goes_every_request_ends_once(seed: int) -> None:
    """Nodes turn at random, whatever was decided: an order may be old when it is read."""
    chance = Random(seed)
    world = begin(a="both", b="both", c="both")
    number = 0
    for _ in range(MAX_ROUNDS):
        act = chance.choice(["submit", "handle", "read", "pull", "pull", "hand on", "turn", "turn", "die", "wait"])
        name = chance.choice("abc")
        node = world.nodes.get(name)
        if act == "submit" and number < 12:
            world.submit(f"r{number}", "m", SLO)
            number += 1
        elif act == "handle" and world.inbox:
            world.handle()
        elif act == "wait":
            world.wait(LOOK_S * chance.random())
        elif node is None:
            world.start(name, "m", "x", follows_load=True)
        elif act == "read" and node.inbox:
            world.read(node)
        elif act == "pull" and node.window:
            world.pull(node, chance.choice(node.window), chance.randint(1, 2))
        elif act == "hand on" and node.running and node.phases == "prefill":
            world.hand_on(node, chance.choice(list(node.running)))
        elif act == "turn":
            world.turn(node, chance.choice(["prefill", "decode", "both"]))
        elif act == "die" and chance.random() < 0.3:
            world.die(name)
    end_all(world)
    assert world.core.state.requests == {}


def end_all(world: World) -> None:
    """Everything that is there is pulled, and ends where it is."""
    for _ in range(MAX_ROUNDS):
        world.settle()
        if not world.core.state.requests:
            return
        if not world.nodes:
            world.start("a", "m", "x", follows_load=True)
            world.settle()
        for node in list(world.nodes.values()):
            for gid in list(node.window):
                world.pull(node, gid, 64)
            world.settle()
            for request in list(node.running):
                world.finish(node, request)
                world.attempts.pop(request, None)
            world.settle()
        world.wait(LOOK_S)
