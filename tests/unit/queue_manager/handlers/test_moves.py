"""Requests move: pulled, evicted, handed over, lost with their node, in whatever order messages are read.

The books agree after every message, every waiting request can be pulled in exactly one place, and in the end each
request is answered.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.queue_manager.handlers.evictions import HAND_OVER_TIMEOUT_S
from services.queue_manager.state.grouping import LEAST_BATCH
from shared.config.config import ClusterConfig
from shared.config.services.queue import QueueOptions
from shared.messages.requests.requests import HANDED_OVER, Attempt
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.world import KV_TOKENS, World, WorldNode

CONFIG = ClusterConfig(queue=QueueOptions(delta=2 / LEAST_BATCH))  # groups of two
MODELS = {"n0": "a", "n1": "a", "n2": "b"}
FORMATS = {"n0": "x", "n1": "y", "n2": ""}
PROMISES = [Slo("interactive", deadline_s=20.0), Slo("batch-1", deadline_s=60.0)]
MAX_ROUNDS = 60

KINDS = ["submit", "handle", "read", "pull", "evict", "drop", "finish", "plan", "load", "cancel", "die", "wait"]
LONG_DAY = KINDS[:-2] * 4 + ["submit", "handle", "handle", "read", "pull"] * 4 + ["wait", "wait", "die"]
ACTIONS = st.sampled_from(KINDS)
PLAYS = st.lists(st.tuples(ACTIONS, st.integers(0, 10**6)), max_size=60)


def act(world: World, action: str, chance: Random) -> None:
    """One thing happens; which one of its kind is up to chance."""
    nodes = list(world.nodes.values())
    busy = [(node, name) for node in nodes for name in node.running]
    match action:
        case "submit":
            world.submit(f"r{len(world.submits)}", chance.choice("ab"), chance.choice(PROMISES))
        case "handle" if world.inbox:
            world.handle()
        case "read" if any(node.inbox for node in nodes):
            world.read(chance.choice([node for node in nodes if node.inbox]))
        case "pull" if any(node.window for node in nodes):
            node = chance.choice([node for node in nodes if node.window])
            world.pull(node, chance.choice(node.window), chance.randint(1, 2))
        case "evict" | "drop" if busy:
            world.evict(*chance.choice(busy), KV_TOKENS if action == "evict" else 0)
        case "finish" if busy:
            finish(world, *chance.choice(busy))
        case "plan":
            plan(world, chance)
        case "load":
            world.load(chance.choice(list(MODELS)), chance.choice("ab"), chance.choice([0.0, 5.0]))
        case "cancel" if world.attempts:
            world.cancel(chance.choice(list(world.attempts)))
        case "die":
            name = chance.choice(list(MODELS))
            world.die(name)
            world.start(name, MODELS[name], FORMATS[name])
        case "wait":
            world.wait(chance.choice([0.01, 0.3, 31.0]))


def plan(world: World, chance: Random) -> None:
    """Any group anywhere."""
    groups = list(world.core.state.groups)
    chance.shuffle(groups)
    queues: dict[str, list[str]] = {name: [] for name in MODELS}
    for gid in groups:
        queues[chance.choice(list(MODELS))].append(gid)
    world.plan(queues)


def finish(world: World, node: WorldNode, name: str) -> None:
    if world.attempts.get(name) == node.running[name]:
        del world.attempts[name]
    world.finish(node, name)


def begin() -> World:
    world = World(CONFIG)
    for name, model in MODELS.items():
        world.start(name, model, FORMATS[name])
    return world


def end(world: World) -> None:
    """Each node holds its model again; everything is read, pulled and answered; then nothing is left."""
    for name, model in MODELS.items():
        world.load(name, model)
    for _ in range(MAX_ROUNDS):
        world.settle()
        world.wait(HAND_OVER_TIMEOUT_S)
        for node in world.nodes.values():
            for gid in list(node.window):
                world.pull(node, gid, 64)
            for name in list(node.running):
                finish(world, node, name)
        if not world.core.state.requests:
            break
    world.settle()
    assert world.attempts == {}, "a client waits for ever"
    assert world.core.state.requests == {}
    assert world.entries == {}, "a stream was left behind"
    assert all(not node.running for node in world.nodes.values()), "a node works for nobody"
    assert all(not node.parked for node in world.nodes.values()), "a node keeps KV that nobody wants"
    assert world.images == set(), "an image that nobody fetches"


@settings(max_examples=200, deadline=None)
@given(PLAYS)
def test_whatever_moves_every_request_is_answered(play: list[tuple[str, int]]) -> None:
    world = begin()
    for action, seed in play:
        act(world, action, Random(seed))
    end(world)


@pytest.mark.parametrize(("formats", "moves"), [(("x", "x"), True), (("x", "y"), False), (("x", ""), True)])
def test_kv_goes_along_where_it_is_of_use_and_else_the_request_begins_anew(
    formats: tuple[str, str], *, moves: bool
) -> None:
    """A node that has not told how its blocks lie may have use for it."""
    world = World(CONFIG)
    world.start("n0", "a", formats[0])
    world.submit("r0", "a", PROMISES[0])
    while world.inbox:
        world.handle()
    (gid,) = world.entries
    world.pull(world.nodes["n0"], gid, 1)
    world.start("n1", "a", formats[1])
    world.plan({"n0": [], "n1": [gid]})
    while world.inbox:
        world.handle()
    while world.nodes["n0"].inbox:
        world.read(world.nodes["n0"])
    assert world.images == ({("n0", Attempt("r0", 0))} if moves else set())
    while world.inbox:
        world.handle()
    assert world.attempts == {"r0": 0 if moves else 1}
    ((entry,),) = [stream for stream in world.entries.values() if stream]
    assert (entry.attempt, entry.kv_at) == ((0, HANDED_OVER) if moves else (1, ""))


@pytest.mark.parametrize(("network_bytes_per_s", "moves"), [(1e6, True), (1e5, False)])
def test_kv_goes_along_where_that_is_sooner_than_computing_it(network_bytes_per_s: float, *, moves: bool) -> None:
    """Of 7 tokens, some 1 kB each: at 1 ms a row they are computed in some milliseconds."""
    world = World(CONFIG)
    for name in ("n0", "n1"):
        world.start(name, "a", "x", network_bytes_per_s=network_bytes_per_s, kv_token_bytes=500)
        if name == "n0":
            world.submit("r0", "a", PROMISES[0])
            while world.inbox:
                world.handle()
            (gid,) = world.entries
            world.pull(world.nodes["n0"], gid, 1)
    world.plan({"n0": [], "n1": [gid]})
    while world.inbox:
        world.handle()
    while world.nodes["n0"].inbox:
        world.read(world.nodes["n0"])
    assert world.images == ({("n0", Attempt("r0", 0))} if moves else set())


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_on_a_long_day(seed: int) -> None:
    """Short plays seldom get as far as a pull that crosses with a hand-over."""
    world, chance = begin(), Random(seed)
    for _ in range(250):
        act(world, chance.choice(LONG_DAY), chance)
    end(world)
