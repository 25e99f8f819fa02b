"""Redis comes back without the end of its log, at any time and more than once.

Its streams and the queue manager are what they were some time ago, while nodes and clients go on. They say what they
have, in any order with everything else; the books agree after every message, and in the end each request is answered
and nobody works for nobody.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.queue_manager.core import QueueManagerCore
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.requests.inventories import of_gateway, of_node
from shared.messages.requests.requests import Attempt, Enqueued, GatewayBeat
from tests.unit.queue_manager.handlers.test_moves import CONFIG, KINDS, LONG_DAY, MODELS, act, begin, end
from tests.unit.queue_manager.world import World

PLAYS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6)), min_size=1, max_size=60)
LOSSES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10**6)), min_size=1, max_size=2)
RESTART_S = 0.5
SPLIT = 2  # requests in a part of an inventory


@dataclass
class Moment:
    """What Redis held: the queue manager's state, and streams."""

    state: bytes
    inbox: list[AnyMessage]
    entries: dict[str, list[Enqueued]]
    images: set[tuple[str, Attempt]]
    num_sent: dict[str, int]
    """Messages that had been sent to each epoch of a node."""
    attempts: dict[str, int]


def moment(world: World) -> Moment:
    return Moment(
        state=world.core.snapshot(),
        inbox=list(world.inbox),
        entries={gid: list(entries) for gid, entries in world.entries.items()},
        images=set(world.images),
        num_sent=dict(world.num_sent),
        attempts=dict(world.attempts),
    )


def lose(world: World, then: Moment, chance: Random) -> None:
    """Redis is as it was then. What clients and nodes have read, they have."""
    world.core = QueueManagerCore(CONFIG)
    world.core.restore(then.state)
    world.now += RESTART_S
    world.inbox = deque(then.inbox)
    world.entries = {gid: list(entries) for gid, entries in then.entries.items()}
    world.images = set(then.images)
    for node in world.nodes.values():
        num_lost = world.num_sent[node.epoch] - then.num_sent.get(node.epoch, 0)
        for _ in range(min(num_lost, len(node.inbox))):
            node.inbox.pop()
        world.num_sent[node.epoch] -= num_lost
    for name, attempt in then.attempts.items():
        if name not in world.attempts and name not in world.cancelled and chance.random() < 0.5:
            world.attempts[name] = attempt  # its end was published, and not yet read
    say_again(world, chance)


def say_again(world: World, chance: Random) -> None:
    """Nodes, gateway and scheduler, in any order; each in the order of its own."""
    world.num_inventories += 1
    inflight = [Attempt(name, attempt) for name, attempt in world.attempts.items()]
    says: list[list[AnyMessage]] = [
        [
            GatewayBeat(gateway="gw", inventory=world.num_inventories),
            *of_gateway("gw", world.num_inventories, inflight, SPLIT),
        ]
    ]
    for node in world.nodes.values():
        running = [Attempt(name, attempt) for name, attempt in node.running.items()]
        parked = [Attempt(name, attempt) for name, attempt in node.parked.items()]
        says.append(list(of_node(node.name, node.epoch, running, parked, SPLIT)))
        says.append([NodeUp(epoch=node.epoch, known=NodeState(node.name, MODELS[node.name], max_num_seqs=2))])
    while says:
        turn = chance.choice(says)
        world.inbox.append(turn.pop(0))
        if not turn:
            says.remove(turn)


def agree(world: World) -> None:
    """When all has been read, each of them knows the same of each request."""
    world.settle()
    state = world.core.state
    assert {name: request.attempt for name, request in state.requests.items()} == world.attempts
    assert all(request.group for request in state.requests.values()), "somebody is waited for"
    for node in world.nodes.values():
        runs = {name: request.attempt for name, request in state.requests.items() if request.node == node.name}
        kept = [group for group in state.groups.values() if group.kv_at == node.name]
        assert node.running == runs
        assert node.parked == {name: state.requests[name].attempt for group in kept for name in group.waiting}


@settings(max_examples=300, deadline=None)
@given(PLAYS, LOSSES)
def test_whatever_redis_forgets_every_request_is_answered(
    play: list[tuple[str, int]], losses: list[tuple[int, int]]
) -> None:
    world = begin()
    for num_lost, lost_seed in losses:
        past = [moment(world)]
        for action, seed in play:
            act(world, action, Random(seed))
            past.append(moment(world))
        lose(world, past[max(0, len(past) - num_lost)], Random(lost_seed))
    for action, seed in play:
        act(world, action, Random(seed + 1))
    agree(world)
    end(world)


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_on_a_long_day(seed: int) -> None:
    world, chance = begin(), Random(seed)
    past = deque([moment(world)], maxlen=60)
    for number in range(1, 251):
        act(world, chance.choice(LONG_DAY), chance)
        past.append(moment(world))
        if number % 50 == 0:
            lose(world, chance.choice(past), chance)
            past.clear()
            past.append(moment(world))
    agree(world)
    end(world)
