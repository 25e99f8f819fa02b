"""What a node tells of itself reaches all who predict: they go by the same numbers."""

from __future__ import annotations

import msgspec

from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.config import ClusterConfig
from shared.core import Effect, Send
from shared.estimator import swap_s
from shared.nodes import Heartbeat, NodeUp
from shared.placement import NodeState
from tests.contract.examples import HEARTBEAT

UNKNOWN = "a model of which the node knows nothing"


def heartbeat(last_swap_s: float) -> Heartbeat:
    return msgspec.structs.replace(HEARTBEAT, swap_s=last_swap_s)


class Both:
    """A scheduler, and the queue manager that it tells."""

    def __init__(self) -> None:
        self.scheduler = SchedulerCore(ClusterConfig())
        self.queue_manager = QueueManagerCore(ClusterConfig())

    def beat(self, beat: Heartbeat) -> int:
        """How often the queue manager was told something."""
        told = [node_up for effect in self.scheduler.handle(beat, 1.0) for node_up in _told(effect)]
        for message in told:
            self.queue_manager.handle(message, 1.0)
        return len(told)

    @property
    def known(self) -> tuple[NodeState, NodeState]:
        """The node as either knows it."""
        return self.scheduler.state.nodes[HEARTBEAT.node].state, self.queue_manager.state.nodes[HEARTBEAT.node].known


def _told(effect: Effect) -> list[NodeUp]:
    return [effect.message] if isinstance(effect, Send) and isinstance(effect.message, NodeUp) else []


def test_scheduler_and_queue_manager_know_the_same_of_a_node() -> None:
    both = Both()
    assert both.beat(heartbeat(7.0)) == 1
    planned, predicted = both.known
    assert planned == predicted
    assert swap_s(planned, HEARTBEAT.model, UNKNOWN) == swap_s(predicted, HEARTBEAT.model, UNKNOWN) == 7.0


def test_a_swap_that_took_longer_is_news_and_one_that_took_about_as_long_is_not() -> None:
    both = Both()
    both.beat(heartbeat(7.0))
    assert both.beat(heartbeat(7.5)) == 0
    assert both.beat(heartbeat(8.0)) == 1
    assert both.known[1].swap_s == 8.0
