"""What a node tells of itself reaches all who predict: they go by the same numbers."""

from __future__ import annotations

from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.config import ClusterConfig
from shared.core import Effect, Send
from shared.estimator import swap_s
from shared.messages import Heartbeat, NodeState, NodeUp
from shared.step_cost import ModelRate, StepCost

RATE = ModelRate("a", StepCost(0.02, 0.001, 0.00001), kv_tokens=1000, kv_token_bytes=64, load_s=0.0)


def heartbeat(last_swap_s: float) -> Heartbeat:
    """No field has its default; of model b, nothing is known."""
    return Heartbeat(
        node="n0",
        epoch="n0.1",
        device="cpu",
        model="a",
        num_blocks=100,
        num_free_blocks=90,
        num_running=2,
        num_waiting=1,
        swap_s=last_swap_s,
        block_bytes=1024,
        broken_models=["c"],
        max_num_seqs=8,
        step_tokens=64,
        kv_bytes_per_s=1e9,
        rates=[RATE],
    )


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
        return self.scheduler.state.nodes["n0"].state, self.queue_manager.state.nodes["n0"].known


def _told(effect: Effect) -> list[NodeUp]:
    return [effect.message] if isinstance(effect, Send) and isinstance(effect.message, NodeUp) else []


def test_scheduler_and_queue_manager_know_the_same_of_a_node() -> None:
    both = Both()
    assert both.beat(heartbeat(7.0)) == 1
    planned, predicted = both.known
    assert planned == predicted
    assert swap_s(planned, "a", "b") == swap_s(predicted, "a", "b") == 7.0


def test_a_swap_that_took_longer_is_news_and_one_that_took_about_as_long_is_not() -> None:
    both = Both()
    both.beat(heartbeat(7.0))
    assert both.beat(heartbeat(7.5)) == 0
    assert both.beat(heartbeat(8.0)) == 1
    assert both.known[1].swap_s == 8.0
