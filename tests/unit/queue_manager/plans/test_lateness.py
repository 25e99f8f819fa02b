"""Who is late, and whether that is news behind a plan."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.plans.lateness import Lateness, QueueLateness
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.predictions import Predictions
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, place

NO_INFLUX = QueueLateness(is_late=False, is_news=False)
NEWS = QueueLateness(is_late=True, is_news=True)
KNOWN = QueueLateness(is_late=True, is_news=False)


class Queue:
    """Groups of a node with one place, where each member takes ten steps of a second."""

    def __init__(self) -> None:
        rate = ModelRate("a", StepCost(1.0, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
        self.node = Node("n0", "1", NodeState("n0", "a", max_num_seqs=1, rates=[rate]))
        self.state = State(nodes={"n0": self.node})
        groups = RequestGroups(self.state, OPTIONS, {})
        self.lateness = Lateness(self.state, Predictions(self.state, groups, make_queues(self.state), OPTIONS))

    def add(self, *, due_s: float) -> None:
        gid = f"g{self.state.next_group}"
        self.state.next_group += 1
        make_group(self.state, gid, due_s=due_s)
        place(self.state, "n0", gid)

    def look(self) -> QueueLateness:
        return self.lateness.look(self.node, 0.0)


def test_who_will_start_too_late_is_news_once() -> None:
    queue = Queue()
    queue.add(due_s=100.0)
    assert queue.look() == NO_INFLUX
    queue.add(due_s=2.0)
    assert queue.look() == NEWS
    assert queue.look() == KNOWN


def test_whom_a_plan_has_left_late_is_no_news_though_nobody_looked_before() -> None:
    queue = Queue()
    queue.add(due_s=100.0)
    queue.add(due_s=2.0)
    queue.lateness.begin_anew()
    assert queue.look() == KNOWN


def test_who_has_come_behind_a_plan_and_is_late_is_news() -> None:
    queue = Queue()
    queue.add(due_s=100.0)
    queue.lateness.begin_anew()
    queue.add(due_s=2.0)
    assert queue.look() == NEWS


def test_who_gets_late_after_the_first_look_behind_a_plan_is_news() -> None:
    queue = Queue()
    queue.add(due_s=100.0)
    queue.lateness.begin_anew()
    assert queue.look() == NO_INFLUX
    queue.state.groups["g0"].start_by_s = queue.state.groups["g0"].last_due_s = -1.0
    assert queue.look() == NEWS


def test_beside_somebody_whom_the_plan_left_late_nobody_is_news() -> None:
    queue = Queue()
    queue.add(due_s=2.0)
    queue.add(due_s=2.0)
    queue.lateness.begin_anew()
    queue.add(due_s=2.0)
    assert queue.look() == KNOWN
