"""Who is told to read KV while its prompt is computed, and who goes on with the request then."""

from __future__ import annotations

import pytest

from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.messages.requests.requests import Attempt, ImageTicket, KvOpened, ReadAhead
from shared.messages.requests.slo import Slo
from shared.service.core import Effect, Send
from tests.unit.queue_manager.world import World

SLO = Slo("interactive", deadline_s=20.0)
TICKET = ImageTicket("p", "http://p:1/images/v1/p.1-1", "secret", 9)


def begin(*, reads_ahead: bool = True, operation: bool | None = None) -> World:
    """One node computes the prompt of r0, two decode; both have room for two requests."""
    operations = OperationOptions(read_ahead=operation)
    world = World(ClusterConfig(queue=QueueOptions(operations=operations)))
    world.start("p", "a", "x", phases="prefill")
    for name in ("d0", "d1"):
        world.start(name, "a", "x", phases="decode", reads_ahead=reads_ahead)
    world.settle()
    submit(world, "r0")
    return world


def submit(world: World, name: str) -> None:
    """It is pulled by the node that prefills."""
    world.submit(name, "a", SLO)
    world.settle()
    for gid in list(world.nodes["p"].window):
        world.pull(world.nodes["p"], gid, 1)
    world.settle()


def opened(world: World, request_id: str = "r0", attempt: int = 0, epoch: str = "") -> list[Effect]:
    giver = world.nodes["p"]
    message = KvOpened(node="p", epoch=epoch or giver.epoch, request=Attempt(request_id, attempt), image=TICKET)
    return world.core.handle(message, world.now)


def hand_on(world: World, name: str = "r0") -> str:
    """Where it goes on."""
    world.hand_on(world.nodes["p"], name)
    world.settle()
    (taker,) = [node.name for node in world.nodes.values() if node.window]
    return taker


def test_the_node_where_it_would_go_on_is_told_and_then_it_goes_on_there() -> None:
    world = begin()
    epoch = world.nodes["d0"].epoch
    told = ReadAhead(node="d0", epoch=epoch, request=Attempt("r0", 0), image=TICKET)
    assert opened(world) == [Send(streams.node_inbox("d0"), told, max_entries=streams.MAX_NODE_INBOX)]
    assert world.core.state.requests["r0"].reader == "d0"
    assert hand_on(world) == "d0"
    assert world.core.state.requests["r0"].reader == ""


def test_it_goes_on_where_it_has_been_read_though_another_node_is_emptier_by_then() -> None:
    world = begin()
    opened(world)
    submit(world, "r1")
    assert hand_on(world, "r1") == "d0", "nobody has read it: the first by name"
    world.pull(world.nodes["d0"], world.nodes["d0"].window[0], 1)
    world.settle()
    assert hand_on(world) == "d0"


@pytest.mark.parametrize("case", ["full", "dead", "new epoch"])
def test_where_it_cannot_go_on_there_it_goes_where_it_would_have_gone(case: str) -> None:
    world = begin()
    opened(world)
    if case == "full":
        for name in ("r1", "r2"):
            submit(world, name)
            world.core.state.requests[name].reader = "d0"
            assert hand_on(world, name) == "d0"
            world.pull(world.nodes["d0"], world.nodes["d0"].window[0], 1)
            world.settle()
    else:
        world.die("d0")
        world.settle()
    if case == "new epoch":
        world.start("d0", "a", "x", phases="prefill")
        world.settle()
    assert hand_on(world) == "d1"


@pytest.mark.parametrize("case", ["unknown", "another attempt", "another epoch", "not there"])
def test_what_is_not_computed_there_is_read_by_nobody(case: str) -> None:
    world = begin()
    match case:
        case "unknown":
            effects = opened(world, "r9")
        case "another attempt":
            effects = opened(world, attempt=1)
        case "another epoch":
            effects = opened(world, epoch="p.9")
        case _:
            hand_on(world)
            effects = opened(world)
    assert not [one for one in effects if isinstance(one, Send) and isinstance(one.message, ReadAhead)]


def test_nodes_that_do_not_know_the_message_are_not_told_nor_is_anybody_to_open_images_for_them() -> None:
    world = begin(reads_ahead=False)
    assert world.nodes["p"].read_ahead == []
    assert opened(world) == []


def test_a_node_is_told_of_which_models_images_are_read_while_they_grow() -> None:
    world = begin()
    assert world.nodes["p"].read_ahead == ["a"]
    for name in ("d0", "d1"):
        world.die(name)
    world.settle()
    assert world.nodes["p"].read_ahead == []


def test_without_the_operation_images_leave_when_they_are_whole() -> None:
    world = begin(operation=False)
    assert (world.nodes["p"].decoded_elsewhere, world.nodes["p"].read_ahead) == (["a"], [])
