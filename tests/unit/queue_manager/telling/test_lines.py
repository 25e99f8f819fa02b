"""What a status says of the queue costs the same however many lines it has: predictions take turns."""

from __future__ import annotations

from math import inf
from typing import Any

from services.queue_manager.telling.lines import MANY_GROUPS, MAX_LINES, MAX_PREDICTED, Lines
from services.queue_manager.waits.elsewhere import NOWHERE_ELSE
from services.queue_manager.waits.predictions import Prospect
from shared.estimator.wait import NOW, Wait
from shared.messages.requests.requests import QueueLine, Submit, TenantLine
from tests.unit.queue_manager.made import MadeGroups


class Predicted:
    """Predictions that say how many there have been, and of whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.unserved: set[str] = set()

    def of_newcomer(self, message: Submit, now: float) -> Prospect | None:
        self.asked.append((message.tenant, message.model))
        return None if message.model in self.unserved else Prospect(True, Wait(float(len(self.asked)), 0.0), NOW)


def made(num_tenants: int, num_models: int = 1) -> tuple[MadeGroups, Predicted, Lines]:
    """A request of each tenant for each model."""
    groups, predicted = MadeGroups(), Predicted()
    for model in range(num_models):
        for tenant in range(num_tenants):
            groups.add(f"{tenant}.{model}", model=f"m{model}", tenant=f"t{tenant}")
    predictions: Any = predicted
    return groups, predicted, Lines(groups.state, predictions)


def test_few_lines_are_all_predicted_each_time() -> None:
    _, predicted, lines = made(num_tenants=2)
    assert lines.look(NOWHERE_ELSE, 1.0) == (
        [QueueLine("m0", "interactive", 2, 0, 1.0, 1.0)],
        [
            TenantLine("t0", QueueLine("m0", "interactive", 1, 0, 2.0, 2.0)),
            TenantLine("t1", QueueLine("m0", "interactive", 1, 0, 3.0, 3.0)),
        ],
    )
    lines.look(NOWHERE_ELSE, 2.0)
    assert predicted.asked == [("t1", "m0"), ("t0", "m0"), ("t1", "m0")] * 2, "of all of a kind, like the last one"


def test_many_take_turns_and_begin_with_their_kinds_wait() -> None:
    """Ten tenants and a line of all: eight predictions each time, of the oldest; the line of all is one of them."""
    groups, predicted, lines = made(num_tenants=10)
    (of_all,), tenants = lines.look(NOWHERE_ELSE, 1.0)
    assert len(predicted.asked) == MAX_PREDICTED == 8
    assert (of_all.num_waiting, of_all.wait_s) == (10, 1.0)
    assert [one.line.wait_s for one in tenants] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 1.0, 1.0]
    groups.add("more", model="m0", tenant="t9")
    (of_all,), tenants = lines.look(NOWHERE_ELSE, 2.0)
    assert of_all.wait_s == 9.0
    assert [one.line.wait_s for one in tenants] == [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 1.0, 1.0, 1.0]
    assert [one.line.num_waiting for one in tenants] == [1] * 9 + [2], "counts are of now"
    (of_all,), tenants = lines.look(NOWHERE_ELSE, 3.0)
    assert [one.line.wait_s for one in tenants[7:]] == [18.0, 19.0, 20.0], "their turn, behind the line of all"


def test_of_many_groups_one_line_is_predicted_at_a_time() -> None:
    groups, predicted, lines = made(num_tenants=MANY_GROUPS)
    lines.begin()
    for number in range(1, MAX_PREDICTED + 1):
        lines.predict(NOWHERE_ELSE, float(number))
        assert (len(predicted.asked), len(groups.state.status.turns)) == (number, MAX_PREDICTED - number)
    (of_all,), tenants = lines.told(9.0)
    assert (of_all.wait_s, of_all.num_waiting) == (1.0, MANY_GROUPS)
    assert [one.line.wait_s for one in tenants[:9]] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 1.0]


def test_a_line_whose_last_group_ends_before_its_turn_keeps_the_wait_that_it_had() -> None:
    groups, predicted, lines = made(num_tenants=MANY_GROUPS + 1)
    lines.begin()
    groups.finish(groups.state.requests["0.0"])
    lines.predict(NOWHERE_ELSE, 1.0)
    lines.predict(NOWHERE_ELSE, 1.0)
    assert len(predicted.asked) == 1, "of all; the first tenant has gone"
    assert [one.tenant for one in lines.told(2.0)[1]][:2] == ["t1", "t2"]


def test_tenants_that_come_and_go_take_no_turn_from_lines_of_all() -> None:
    groups, _, lines = made(num_tenants=1, num_models=2)
    for second in range(1, 6):
        for number in range(20):
            groups.add(f"{second}.{number}", model="m0", tenant=f"t{second}.{number}")
        lines.look(NOWHERE_ELSE, float(second))
        waits = groups.state.status.waits
        assert {waits["", model, "interactive"].predicted_at_s for model in ("m0", "m1")} == {second}
        for number in range(20):
            groups.finish(groups.state.requests[f"{second}.{number}"])


def test_a_tenant_alone_in_a_kind_beyond_those_that_are_told_has_a_line_of_its_own() -> None:
    _, _, lines = made(num_tenants=1, num_models=MAX_LINES + 1)
    found = [lines.look(NOWHERE_ELSE, float(second)) for second in range(60)][-1]
    assert (len(found[0]), len(found[1])) == (MAX_LINES, MAX_LINES + 1)


def test_kinds_that_nobody_has_predicted_yet_are_left_out() -> None:
    _, predicted, lines = made(num_tenants=1, num_models=10)
    first, tenants = lines.look(NOWHERE_ELSE, 1.0)
    assert [line.model for line in first] == [f"m{number}" for number in range(8)]
    assert [one.line.model for one in tenants] == [line.model for line in first], (
        "a kind of one tenant is that tenant's"
    )
    assert [line.model for line in lines.look(NOWHERE_ELSE, 2.0)[0]] == [f"m{number}" for number in range(10)]
    assert len(predicted.asked) == 16


def test_a_model_that_no_node_can_serve_has_an_infinite_wait_and_what_is_gone_is_forgotten() -> None:
    groups, predicted, lines = made(num_tenants=1, num_models=2)
    predicted.unserved = {"m1"}
    assert [line.wait_s for line in lines.look(NOWHERE_ELSE, 1.0)[0]] == [1.0, inf]
    groups.finish(groups.state.requests["0.1"])
    lines.look(NOWHERE_ELSE, 2.0)
    assert list(groups.state.status.waits) == [("", "m0", "interactive")]
