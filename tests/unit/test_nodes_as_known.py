"""What a node tells of itself reaches all who predict: they go by the same numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.config.config import ClusterConfig
from shared.estimator.estimator import swap_s
from shared.messages.nodes.nodes import Heartbeat, NodeState, NodeUp
from shared.messages.nodes.placement import PlanRequest
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.service.core import Effect, Send, Solve
from tests.contract.examples import HEARTBEAT

UNKNOWN = "a model of which the node knows nothing"


def heartbeat(last_swap_s: float) -> Heartbeat:
    return with_facts(HEARTBEAT, swap_s=last_swap_s)


def with_facts(beat: Heartbeat, **facts: object) -> Heartbeat:
    return msgspec.structs.replace(beat, facts=msgspec.structs.replace(beat.facts, **facts))


class Both:
    """A scheduler, and the queue manager that it tells."""

    def __init__(self, models: Sequence[str] = ("smol",)) -> None:
        config = ClusterConfig.model_validate(
            {"models": [{"name": name, "source": "/models/any.gguf"} for name in models]}
        )
        self.scheduler = SchedulerCore(config)
        self.queue_manager = QueueManagerCore(config)

    def beat(self, beat: Heartbeat) -> int:
        """How often the queue manager was told something."""
        told = [node_up for effect in self.scheduler.handle(beat, 1.0) for node_up in _told(effect)]
        for message in told:
            self.queue_manager.handle(message, 1.0)
        return len(told)

    @property
    def planned(self) -> list[NodeState]:
        """The nodes as a plan sees them."""
        effects = self.scheduler.handle(PlanRequest(version=1, groups=[]), 1.0)
        return [node for effect in effects if isinstance(effect, Solve) for node in effect.problem.nodes]

    @property
    def predicted(self) -> list[NodeState]:
        """As predictions do."""
        return [node.known for node in self.queue_manager.state.nodes.values()]


def _told(effect: Effect) -> list[NodeUp]:
    return [effect.message] if isinstance(effect, Send) and isinstance(effect.message, NodeUp) else []


def test_scheduler_and_queue_manager_know_the_same_of_a_node() -> None:
    both = Both()
    assert both.beat(heartbeat(7.0)) == 1
    (planned,), (predicted,) = both.planned, both.predicted
    assert planned == predicted
    assert swap_s(planned, HEARTBEAT.model, UNKNOWN) == swap_s(predicted, HEARTBEAT.model, UNKNOWN) == 7.0


def test_what_a_node_has_not_measured_both_know_from_others_of_its_kind() -> None:
    both = Both(["smol", "other"])
    learnt = ModelRate("other", StepCost(0.5, 0.0, 0.0), kv_tokens=100, kv_token_bytes=1, load_s=3.0)
    both.beat(heartbeat(7.0))
    assert both.predicted[0].rates == HEARTBEAT.facts.rates, "nobody has run the other model"
    both.beat(with_facts(msgspec.structs.replace(HEARTBEAT, node="node-1", model="other"), rates=[learnt]))
    assert both.predicted[0].rates == [*HEARTBEAT.facts.rates, learnt]
    assert both.predicted == both.planned


def test_a_swap_that_took_longer_is_news_and_one_that_took_about_as_long_is_not() -> None:
    both = Both()
    both.beat(heartbeat(7.0))
    assert both.beat(heartbeat(7.5)) == 0
    assert both.beat(heartbeat(8.0)) == 1
    assert both.predicted[0].swap_s == 8.0


def test_a_load_is_told_when_it_begins_and_when_it_ends_and_planned_with_meanwhile() -> None:
    both = Both(["smol", "other"])
    other = ModelRate("other", StepCost(0.5, 0.0, 0.0), kv_tokens=100, kv_token_bytes=1, load_s=3.0)
    before = with_facts(msgspec.structs.replace(HEARTBEAT, loading=""), rates=[*HEARTBEAT.facts.rates, other])
    loading = msgspec.structs.replace(before, loading="other")
    assert both.beat(before) == 1
    assert both.beat(loading) == 1
    assert [(node.model, node.ready_at_s) for node in both.planned] == [("other", 1.0 + 3.0)]
    assert both.predicted == both.planned
    assert both.beat(loading) == 0
    assert both.beat(msgspec.structs.replace(before, model="other")) == 1
    assert [(node.model, node.ready_at_s) for node in both.planned] == [("other", 0.0)]
    assert both.predicted == both.planned
