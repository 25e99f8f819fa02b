"""The anytime search: always an order that keeps the rules, never worse than what it started from."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.solving.methods.anytime import search
from services.scheduler.solving.methods.greedy import insert_all
from services.scheduler.solving.methods.layout import Budget, Layout
from services.scheduler.solving.methods.search import improve
from services.scheduler.solving.problem.cost import queue_cost, total_cost
from services.scheduler.solving.problem.current import current_order
from services.scheduler.solving.problem.instance import Instance, Queues
from tests.unit.scheduler.instances import Load, Place, instance, instances, keeps_rules, least_of_all

pytestmark = pytest.mark.slow

VISITS = 20_000


def check(problem: Instance, queues: Queues) -> None:
    placed = sorted(group for queue in queues for group in queue)
    assert placed == [number for number, group in enumerate(problem.groups) if group.places]
    assert all(keeps_rules(problem, node, tuple(queue)) for node, queue in enumerate(queues))


def shuffled(problem: Instance, random: Random) -> Queues:
    """Some order that keeps the rules; a few groups have no place in it."""
    names = [group.name for group in problem.groups]
    random.shuffle(names)
    nodes = [node.name for node in problem.nodes]
    return current_order(problem, {name: names[number :: len(nodes) + 1] for number, name in enumerate(nodes)})


@settings(max_examples=40, deadline=None)
@given(instances(), st.randoms(use_true_random=False), st.sampled_from([0, 50, VISITS]))
def test_every_group_has_one_place_and_the_cost_only_falls(problem: Instance, random: Random, visits: int) -> None:
    found = search(problem, shuffled(problem, random), visits)
    check(problem, found.current)
    check(problem, found.best)
    assert total_cost(problem, found.best) <= total_cost(problem, found.current) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(instances(), st.randoms(use_true_random=False))
def test_the_current_order_is_kept_and_completed(problem: Instance, random: Random) -> None:
    start = shuffled(problem, random)
    current = search(problem, start, VISITS).current
    for before, after in zip(start, current, strict=True):
        assert [group for group in after if group in before] == before


@settings(max_examples=40, deadline=None)
@given(instances())
def test_it_is_never_worse_than_insertion_by_regret(problem: Instance) -> None:
    layout = Layout(problem, Budget(VISITS))
    insert_all(layout, range(len(problem.groups)))
    greedy = layout.cost
    improve(layout)
    check(problem, layout.queues)
    assert layout.cost <= greedy * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(instances(), st.randoms(use_true_random=False))
def test_the_same_problem_has_the_same_answer(problem: Instance, random: Random) -> None:
    start = shuffled(problem, random)
    assert search(problem, start, VISITS) == search(problem, start, VISITS)


@settings(max_examples=40, deadline=None)
@given(instances(max_groups=4, max_nodes=2))
def test_on_small_instances_it_is_close_to_the_best_of_all_orders(problem: Instance) -> None:
    found = total_cost(problem, search(problem, [[] for _ in problem.nodes], VISITS).best)
    assert found <= least_of_all(problem) * 1.05 + 1e-9


@settings(max_examples=40, deadline=None)
@given(instances(), st.randoms(use_true_random=False))
def test_a_trial_costs_what_a_walk_of_the_whole_queue_costs(problem: Instance, random: Random) -> None:
    """The tables of states are an optimisation: `queue_cost` is the plain path."""
    layout = Layout(problem, Budget(VISITS))
    insert_all(layout, range(len(problem.groups)))
    for node, queue in enumerate(layout.queues):
        assert layout.cost_at(node) == pytest.approx(queue_cost(problem, node, queue))
        for place in range(len(queue)):
            rest = queue[:place] + queue[place + 1 :]
            saving = queue_cost(problem, node, queue) - queue_cost(problem, node, rest)
            assert layout.saving(node, place) == pytest.approx(saving, abs=1e-6)
    for group in list(layout.node_of):
        layout.take(group)
        for node in problem.groups[group].places:
            found = layout.best_place([group], node)
            queue = layout.queues[node]
            first, last = problem.span(group, node, queue)
            costs = [
                queue_cost(problem, node, [*queue[:place], group, *queue[place:]]) - layout.cost_at(node)
                for place in range(first, last + 1)
            ]
            assert found.added == pytest.approx(min(costs), abs=1e-6)
        insert_all(layout, [group])


def test_a_limit_rules_out_what_costs_more() -> None:
    layout = Layout(instance([Place()], [Load(work_s=2)]), Budget(VISITS))
    assert layout.best_place([0], 0, limit=2.5).added == 2
    assert layout.best_place([0], 0, limit=2).added == inf


def test_the_group_with_most_to_lose_is_placed_first() -> None:
    """Both want n0. g0 is due first, but would be in time on n1 as well; g1 has no other node."""
    problem = instance(
        [Place("a"), Place("a", speed=0.5)],
        [Load(work_s=4, lead_s=0, due_s=3), Load(work_s=4, lead_s=0, due_s=3.5, slo="interactive", places=(0,))],
    )
    layout = Layout(problem, Budget(VISITS))
    insert_all(layout, [0, 1])
    assert layout.queues == [[1], [0]]


def test_runs_of_one_model_are_merged() -> None:
    problem = instance([Place("a"), Place("b")], [Load("a"), Load("b"), Load("a", slo="i"), Load("b", slo="i")])
    layout = Layout(problem, Budget(VISITS))
    layout.replace(0, [0, 1])
    layout.replace(1, [3, 2])
    improve(layout)
    assert sorted(map(sorted, layout.queues)) == [[0, 2], [1, 3]]


def test_a_segment_moves_only_where_it_may_start_in_its_order() -> None:
    runs = Load(waits=0, runs=1, home=0)
    layout = Layout(instance([Place(), Place()], [runs, runs]), Budget(VISITS))
    assert layout.best_place([1, 0], 0).node == 0
    assert layout.best_place([1, 0], 1).added == inf, "at home they have started, elsewhere 0 goes first"


def test_a_search_without_budget_appends_where_it_is_served_first() -> None:
    problem = instance([Place("a"), Place("b", speed=2)], [Load("a"), Load("b", slo="i"), Load("b", due_s=5)])
    assert search(problem, [[], []], 0).best == [[0], [2, 1]]


def test_long_queues_are_searched_at_some_places_only() -> None:
    problem = instance([Place()], [Load(slo=f"kind {number}", due_s=40.0 * number) for number in range(80)])
    layout = Layout(problem, Budget(10 * VISITS))
    layout.replace(0, range(1, 80))
    before = layout.budget.num_visits
    assert layout.best_place([0], 0).place == 0
    assert before - layout.budget.num_visits < 26 * 80
