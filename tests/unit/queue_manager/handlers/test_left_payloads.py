"""A gateway has died: what it has not deleted is deleted for it."""

from __future__ import annotations

from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.messages.requests.requests import GatewayBeat, GatewayGone
from shared.messages.requests.slo import Slo
from shared.service.core import Drop
from tests.unit.queue_manager.world import World


def dropped_after(num_beats: int, *, says_inventory: bool = False) -> bool:
    """Whether the payload of a finished request is dropped when its gateway goes so many beats after its end."""
    world = World(ClusterConfig())
    world.start("n0", "a")
    world.submit("r0", "a", Slo("interactive", deadline_s=20.0))
    world.settle()
    world.pull(world.nodes["n0"], "g0", 1)
    world.finish(world.nodes["n0"], "r0")
    world.settle()
    for _ in range(num_beats):
        world.do(GatewayBeat(gateway="gw"))
        if says_inventory:
            world.do(GatewayBeat(gateway="gw", inventory=1))
    return Drop(streams.payload("r0")) in world.do(GatewayGone(gateway="gw"))


def test_a_beat_may_be_older_than_the_end_that_its_gateway_has_not_heard() -> None:
    assert dropped_after(0)
    assert dropped_after(1)


def test_the_date_of_an_inventory_is_no_beat_of_its_own() -> None:
    assert dropped_after(1, says_inventory=True)


def test_a_gateway_that_goes_back_in_its_stream_may_hear_the_end_only_now() -> None:
    assert dropped_after(2, says_inventory=True)
    assert dropped_after(3, says_inventory=True)


def test_by_the_next_beat_a_gateway_that_lives_has_deleted_it_itself() -> None:
    assert not dropped_after(2)
