"""A look at who will start too late: at long queues by ticks, a bounded number of groups each, until all were seen."""

from __future__ import annotations

from typing import Any

import pytest

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.plans.planning import CHECK_GROUPS, CHECK_INTERVAL_S, Planning
from services.queue_manager.state.journal import Journal
from services.queue_manager.state.node import Node
from services.queue_manager.waits.predictions import FORECAST_GROUPS
from tests.unit.queue_manager.books import OPTIONS, make_group, make_state, place

NODES = ("n0", "n1", "n2", "n3", "n4")


class Looks:
    """Five nodes with queues of so many groups, and whose were predicted, decision by decision."""

    def __init__(self, num_groups: int) -> None:
        self.state = make_state(**dict.fromkeys(NODES, "a"))
        for name in NODES:
            for number in range(num_groups):
                make_group(self.state, f"{name}.{number}", due_s=1000.0)
                place(self.state, name, f"{name}.{number}")
        self.state.waiting_at = dict.fromkeys(NODES)
        self.state.plan.num_asked_groups = len(self.state.groups)  # no burst
        predictions: Any = self
        self.planning = Planning(self.state, RequestGroups(self.state, OPTIONS, {}), predictions, OPTIONS, None)
        self._seen: list[str] = []

    def of_node(self, node: Node, now: float) -> dict[str, Any]:
        self._seen.append(node.node)
        return {}

    def tick(self, now: float) -> list[str]:
        return self.at(now, is_tick=True)

    def at(self, now: float, *touched: str, is_tick: bool = False) -> list[str]:
        self.state.now_s = now
        journal = Journal()
        for name in touched:
            journal.note_work(name)
        self.planning.hear(journal)
        self._seen = []
        assert self.planning.ask(now, is_tick=is_tick) == []
        return self._seen


def test_short_queues_are_all_looked_at_at_once() -> None:
    assert Looks(num_groups=2).at(1.0, *NODES) == list(NODES)


def test_of_long_queues_a_tick_looks_at_two_nodes_and_the_next_look_begins_when_all_were_seen() -> None:
    assert CHECK_GROUPS == 2 * FORECAST_GROUPS
    looks = Looks(num_groups=FORECAST_GROUPS + 1)
    assert looks.at(1.0, *NODES) == []
    assert looks.planning.wake_at == 1.0, "a tick comes at once"
    assert looks.tick(1.0) == ["n0", "n1"]
    assert looks.at(1.01, "n0") == [], "a request waits for no look"
    assert looks.tick(1.01) == ["n2", "n3"]
    assert looks.tick(1.02) == ["n4"]
    assert looks.planning.wake_at == pytest.approx(1.0 + CHECK_INTERVAL_S), "n0 has changed since"
    assert looks.tick(1.03) == []
    assert looks.at(1.0 + CHECK_INTERVAL_S) == ["n0"]


def test_a_node_at_which_nobody_waits_any_more_is_not_looked_at() -> None:
    looks = Looks(num_groups=FORECAST_GROUPS)
    looks.at(1.0, *NODES, is_tick=True)
    del looks.state.waiting_at["n2"], looks.state.nodes["n2"]
    assert looks.tick(1.01) == ["n3", "n4"]


def test_a_plan_that_is_applied_ends_the_look() -> None:
    looks = Looks(num_groups=FORECAST_GROUPS)
    looks.at(1.0, *NODES, is_tick=True)
    looks.planning.note_applied(Journal(), 1.01)
    assert looks.tick(1.02) == []
