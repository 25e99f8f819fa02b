"""Who is stuck at a node leaves it, and does not come back to it while another one has room."""

from __future__ import annotations

from services.queue_manager.plans.take_over import STUCK_S
from shared.config.config import ClusterConfig
from shared.config.services.queue import QueueOptions
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.world import World

SOON = Slo("interactive", deadline_s=20.0)


def serve_all(world: World, name: str) -> None:
    """The node pulls one request of each group that it sees."""
    node = world.nodes[name]
    for gid in list(node.window):
        world.pull(node, gid, 1)
    world.settle()


def test_a_member_that_is_stuck_begins_at_another_node() -> None:
    """Both have one request and room for one more, and of equals the first by name is taken: but not by who left it."""
    world = World(ClusterConfig(queue=QueueOptions(delta=2.0)))  # groups of four
    world.start("n0", "a")
    world.submit("runs", "a", SOON)
    world.settle()
    serve_all(world, "n0")
    world.submit("stuck", "a", SOON)
    world.settle()
    world.start("n1", "a")
    world.submit("other", "a", SOON)
    world.settle()
    serve_all(world, "n1")
    state = world.core.state
    assert state.groups[state.requests["stuck"].group].node == "n0"
    assert state.requests["other"].node == "n1"
    world.wait(STUCK_S)
    world.settle()
    stuck = state.requests["stuck"]
    assert (stuck.attempt, state.groups[stuck.group].node, stuck.left) == (1, "n1", "")
