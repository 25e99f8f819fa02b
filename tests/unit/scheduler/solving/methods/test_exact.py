"""The mixed-integer program: its optimum is the best of all orders, by the cost function that all methods share."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from services.scheduler.solving.methods.exact import solve_exactly
from services.scheduler.solving.methods.exact_size import MAX_GROUPS, is_small
from services.scheduler.solving.methods.turns import running_groups, turns
from services.scheduler.solving.problem.cost import total_cost
from services.scheduler.solving.problem.instance import Instance, Queues
from tests.unit.scheduler.instances import Load, Place, instance, instances, keeps_rules, least_of_all


def some_order(problem: Instance) -> Queues:
    """Everything on the first node that may have it: a bad start."""
    queues = running_groups(problem)
    for group in turns(problem, key=lambda number: number):
        queues[problem.groups[group].places[0]].append(group)
    return queues


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(instances(max_groups=3, max_nodes=2))
def test_it_finds_the_best_of_all_orders(problem: Instance) -> None:
    found = solve_exactly(problem, some_order(problem)).queues
    assert total_cost(problem, found) == pytest.approx(least_of_all(problem), rel=1e-6)
    assert all(keeps_rules(problem, node, tuple(queue)) for node, queue in enumerate(found))


def test_with_as_many_groups_as_are_solved_exactly() -> None:
    random = Random(0)
    for _ in range(3):
        loads = [
            Load(
                random.choice("abc"),
                work_s=random.uniform(1, 9),
                due_s=random.uniform(0, 20),
                waits=random.randint(1, 8),
                tail_s=random.uniform(0, 3),
            )
            for _ in range(MAX_GROUPS)
        ]
        problem = instance([Place("a", overlap_s=1), Place("b", speed=2)], loads)
        assert is_small(problem)
        found = solve_exactly(problem, some_order(problem))
        assert found.is_optimal
        assert total_cost(problem, found.queues) == pytest.approx(least_of_all(problem), rel=1e-6)


def test_a_node_that_loads_takes_what_it_loads_for_and_leaves_the_rest_to_others() -> None:
    # n0 is ready at 4: its own model then, and b at once at n1; b behind the load would wait for a second one
    problem = instance([Place("a", ready_s=4), Place("b")], [Load("a"), Load("b"), Load("b", slo="interactive")])
    found = solve_exactly(problem, some_order(problem))
    assert [sorted(queue) for queue in found.queues] == [[0], [1, 2]]
    assert total_cost(problem, found.queues) == (4 + 1) + 1 + 2
    # n1 would have to load for 3 s as well, but begins with that now
    empty = instance([Place("a", ready_s=4), Place("c")], [Load("b")])
    found = solve_exactly(empty, some_order(empty))
    assert found.queues == [[], [0]]
    assert total_cost(empty, found.queues) == 3 + 1


def test_times_of_less_than_a_nanosecond_count_as_none() -> None:
    """As differences of equal times are: HiGHS warns of such a factor, and no plan came."""
    loads = [Load("a", work_s=2, tail_s=1e-12), Load("a", work_s=1, tail_s=1e-300), Load("b", evict_s=1e-10)]
    problem = instance([Place("a", overlap_s=1e-11), Place("b")], loads)
    found = solve_exactly(problem, some_order(problem))
    assert found.is_optimal
    assert total_cost(problem, found.queues) == pytest.approx(least_of_all(problem), rel=1e-6)


def test_more_are_too_many() -> None:
    assert not is_small(instance([Place()], [Load()] * (MAX_GROUPS + 1)))
    assert not is_small(instance([Place()] * 4, [Load()] * MAX_GROUPS))
    assert not is_small(instance([Place()], []))


def test_an_order_that_cannot_be_bettered_is_kept() -> None:
    problem = instance([Place(), Place()], [Load(work_s=2), Load(work_s=2)])
    assert solve_exactly(problem, [[1], [0]]).queues == [[1], [0]]


def test_it_prints_nothing() -> None:
    """Standard output belongs to reports and logs; HiGHS says its name there once in the life of a process."""
    script = """
from services.scheduler.solving.methods.exact import solve_exactly
from tests.unit.scheduler.instances import Load, Place, instance
solve_exactly(instance([Place()], [Load()]), [[0]])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
