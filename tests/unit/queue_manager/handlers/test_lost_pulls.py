"""Redis has lost a pull: its node gives the request back, and acknowledges the entry by which it could be pulled."""

from __future__ import annotations

from shared.config.config import ClusterConfig
from shared.messages.messages import AnyMessage
from shared.messages.requests.inventories import NodeInventory
from shared.messages.requests.requests import HANDED_OVER, Abort, Attempt, Evicted, EvictedRequest, Pulled, Resubmit
from shared.messages.requests.slo import Slo
from shared.service.core import Send
from tests.unit.queue_manager.world import KV_TOKENS, World

SOON = Slo("interactive", deadline_s=20.0)


def waiting() -> World:
    """One request waits at a node."""
    world = World(ClusterConfig())
    world.start("n0", "a")
    world.submit("r0", "a", SOON)
    world.settle()
    return world


def give_back(world: World, kv_at: str, number: int) -> list[object]:
    """What the queue manager answers to an eviction of r0."""
    epoch = world.nodes["n0"].epoch
    evicted = Evicted(node="n0", epoch=epoch, requests=[EvictedRequest("r0", 0, 3, KV_TOKENS, kv_at)], number=number)
    return answers(world, evicted)


def answers(world: World, message: AnyMessage) -> list[object]:
    effects = world.core.handle(message, world.now)
    return [effect.message for effect in effects if isinstance(effect, Send)]


AGAIN = Resubmit(requests=[Attempt("r0", 0)], gave_way=True)


def test_what_is_given_back_though_nobody_has_taken_it_is_submitted_again() -> None:
    for kv_at in ("n0", HANDED_OVER):
        world = waiting()
        assert AGAIN in give_back(world, kv_at, number=1)
        assert world.core.state.requests["r0"].group == ""


def test_an_eviction_that_is_told_twice_is_taken_once() -> None:
    for kv_at in ("n0", HANDED_OVER):
        world = waiting()
        world.pull(world.nodes["n0"], "g0", 1)
        world.settle()
        give_back(world, kv_at, number=2)
        group = world.core.state.requests["r0"].group
        assert AGAIN not in give_back(world, kv_at, number=2)
        assert world.core.state.requests["r0"].group == group


def test_what_was_handed_over_pulled_and_given_back_is_submitted_again_where_the_pull_is_lost() -> None:
    """The entry by which it could be pulled has gone with the second eviction, though its KV was in Redis before."""
    world = waiting()
    world.pull(world.nodes["n0"], "g0", 1)
    world.settle()
    give_back(world, HANDED_OVER, number=2)
    assert AGAIN in give_back(world, HANDED_OVER, number=4)


def test_an_inventory_that_comes_behind_what_was_told_later_says_nothing() -> None:
    """It stood in a buffer of Redis while its node gave up, told it again, and pulled."""
    world = waiting()
    epoch = world.nodes["n0"].epoch
    answers(world, Pulled(node="n0", epoch=epoch, group="g0", requests=[Attempt("r0", 0)], number=2))
    assert answers(world, NodeInventory(node="n0", epoch=epoch, number=1)) == []
    assert world.core.state.requests["r0"].node == "n0"
    assert AGAIN in answers(world, NodeInventory(node="n0", epoch=epoch, number=3))


def test_an_inventory_in_parts_is_heard_in_all_of_them() -> None:
    world = waiting()
    epoch = world.nodes["n0"].epoch
    answers(world, Pulled(node="n0", epoch=epoch, group="g0", requests=[Attempt("r0", 0)], number=1))
    answers(world, NodeInventory(node="n0", epoch=epoch, upto="q", number=2))
    assert AGAIN in answers(world, NodeInventory(node="n0", epoch=epoch, above="q", number=2))


def test_who_pulls_and_is_not_known_is_told_to_stop() -> None:
    """Redis has lost what told of the node's epoch: it would run for nobody until its end."""
    world = waiting()
    pulled = Pulled(node="n0", epoch="not known yet", group="g0", requests=[Attempt("r0", 0)])
    effects = world.core.handle(pulled, world.now)
    assert [effect.message for effect in effects if isinstance(effect, Send)][:2] == [
        Abort(requests=[Attempt("r0", 0)]),
        Resubmit(requests=[Attempt("r0", 0)]),
    ]
