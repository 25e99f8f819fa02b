"""Which orders a queue may have, and what is kept of the queues as they are."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.solving.problem.current import current_order
from services.scheduler.solving.problem.instance import Instance
from tests.unit.scheduler.instances import Load, Place, instance, instances, keeps_rules

RUNS = Load(waits=0, runs=1, home=0)


def test_within_a_kind_groups_stand_in_the_order_of_their_rank() -> None:
    problem = instance([Place()], [Load(), Load(), Load()])
    assert problem.span(1, 0, [0, 2]) == (1, 1)
    assert problem.span(0, 0, [1, 2]) == (0, 0)


def test_other_models_and_other_promises_may_overtake() -> None:
    problem = instance([Place()], [Load(), Load("b"), Load(slo="interactive")])
    assert problem.span(2, 0, [0, 1]) == (0, 2)


def test_who_runs_has_started_so_those_of_lower_rank_may_stand_behind() -> None:
    problem = instance([Place()], [Load(), RUNS, Load()])
    assert problem.span(0, 0, [1]) == (0, 1)
    assert problem.span(1, 0, [0]) == (0, 1)
    assert problem.span(2, 0, [1]) == (1, 1), "but not those of higher rank before"


def test_on_another_node_it_is_like_one_that_waits() -> None:
    problem = instance([Place(), Place()], [Load(), RUNS])
    assert problem.span(1, 1, [0]) == (1, 1)


def test_without_eviction_what_runs_comes_before_what_waits() -> None:
    problem = instance([Place()], [RUNS, Load("b"), Load(slo="interactive")], may_evict=False)
    assert problem.span(2, 0, [0, 1]) == (1, 2)
    assert problem.span(0, 0, [1, 2]) == (0, 0)


def test_the_current_order_leaves_out_what_is_gone_or_may_not_stay() -> None:
    problem = instance([Place(), Place()], [Load(), Load(places=(1,))])
    assert current_order(problem, {"n0": ["gone", "g1", "g0"], "n7": ["g0"]}) == [[0], []]


def test_the_current_order_keeps_a_group_once() -> None:
    problem = instance([Place(), Place()], [Load()])
    assert current_order(problem, {"n0": ["g0"], "n1": ["g0"]}) == [[0], []]


def test_a_group_that_stands_behind_a_higher_rank_moves_forward() -> None:
    problem = instance([Place()], [Load(), Load("b"), Load()])
    assert current_order(problem, {"n0": ["g1", "g2", "g0"]}) == [[1, 0, 2]]


def test_running_groups_of_which_some_wait_stand_behind_those_that_run_as_a_whole() -> None:
    partly = Load(waits=1, runs=1, home=0)
    problem = instance([Place()], [partly, RUNS, Load()])
    assert current_order(problem, {"n0": ["g0", "g1", "g2"]}) == [[1, 0, 2]]


@given(instances(), st.randoms(use_true_random=False))
def test_the_current_order_keeps_the_rules_whatever_it_was(problem: Instance, random: Random) -> None:
    names = [group.name for group in problem.groups]
    random.shuffle(names)
    queues = {node.name: names[number :: len(problem.nodes)] for number, node in enumerate(problem.nodes)}
    order = current_order(problem, queues)
    assert all(keeps_rules(problem, node, tuple(queue)) for node, queue in enumerate(order))
    assert current_order(problem, _names(problem, order)) == order


def _names(problem: Instance, order: list[list[int]]) -> dict[str, list[str]]:
    return {
        node.name: [problem.groups[group].name for group in queue]
        for node, queue in zip(problem.nodes, order, strict=True)
    }
