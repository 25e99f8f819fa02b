"""Redis has lost a pull: its node gives the request back, and acknowledges the entry by which it could be pulled."""

from __future__ import annotations

from shared.config import ClusterConfig
from shared.core import Send
from shared.requests import HANDED_OVER, Abort, Attempt, Evicted, EvictedRequest, Pulled, Resubmit
from shared.slo import Slo
from tests.unit.queue_manager.world import KV_TOKENS, World

SOON = Slo("interactive", deadline_s=20.0)


def waiting() -> World:
    """One request waits at a node."""
    world = World(ClusterConfig())
    world.start("n0", "a")
    world.submit("r0", "a", SOON)
    world.settle()
    return world


def give_back(world: World, kv_at: str) -> list[object]:
    """What the queue manager answers to an eviction of r0."""
    epoch = world.nodes["n0"].epoch
    evicted = Evicted(node="n0", epoch=epoch, requests=[EvictedRequest("r0", 0, 3, KV_TOKENS, kv_at)])
    effects = world.core.handle(evicted, world.now)
    return [effect.message for effect in effects if isinstance(effect, Send)]


def test_what_is_given_back_though_nobody_has_taken_it_is_submitted_again() -> None:
    for kv_at in ("n0", HANDED_OVER):
        world = waiting()
        assert Resubmit(requests=[Attempt("r0", 0)], gave_way=True) in give_back(world, kv_at)
        assert world.core.state.requests["r0"].group == ""


def test_an_eviction_to_redis_that_is_told_twice_is_taken_once() -> None:
    world = waiting()
    world.pull(world.nodes["n0"], "g0", 1)
    world.settle()
    give_back(world, HANDED_OVER)
    group = world.core.state.requests["r0"].group
    assert not any(isinstance(message, Resubmit) for message in give_back(world, HANDED_OVER))
    assert world.core.state.requests["r0"].group == group


def test_who_pulls_and_is_not_known_is_told_to_stop() -> None:
    """Redis has lost what told of the node's epoch: it would run for nobody until its end."""
    world = waiting()
    pulled = Pulled(node="n0", epoch="not known yet", group="g0", requests=[Attempt("r0", 0)])
    effects = world.core.handle(pulled, world.now)
    assert [effect.message for effect in effects if isinstance(effect, Send)][:2] == [
        Abort(requests=[Attempt("r0", 0)]),
        Resubmit(requests=[Attempt("r0", 0)]),
    ]
