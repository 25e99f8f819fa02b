"""Redis has lost its end, and with it a question for a plan; its answer comes all the same."""

from __future__ import annotations

from shared.config.config import ClusterConfig
from shared.messages.nodes.placement import Plan, PlanRequest
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.world import World

SOON = Slo("interactive", deadline_s=20.0)


def asked(world: World) -> PlanRequest:
    """The question that is due when nobody knows where to put a request of a model that no node holds."""
    world.start("n0", "a")
    world.submit("r0", "b", SOON)
    world.settle()
    world.wait(1.0)
    assert world.core.state.plan.asked_at_s is not None
    return PlanRequest(version=world.core.state.plan.asked_version, groups=[])


def test_an_answer_to_a_question_that_was_lost_does_not_outdate_the_answers_to_come() -> None:
    world = World(ClusterConfig())
    question = asked(world)
    world.do(Plan(version=question.version + 5, queues={"n0": ["g7"]}))
    assert world.core.state.groups["g0"].node == ""
    world.do(Plan(version=question.version, queues={"n0": ["g0"]}))
    assert world.core.state.groups["g0"].node == "n0"


def test_an_answer_is_taken_once() -> None:
    world = World(ClusterConfig())
    question = asked(world)
    world.do(Plan(version=question.version, queues={"n0": ["g0"]}))
    next_look_s, applied = world.core.state.look_again_s, world.core.snapshot()
    world.do(Plan(version=question.version, queues={"n0": []}))
    assert world.core.state.groups["g0"].node == "n0"
    world.core.state.look_again_s = next_look_s  # of idle nodes, whatever came
    assert world.core.snapshot() == applied
