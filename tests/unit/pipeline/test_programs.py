"""Both stages beside brute force on layers so small that all can be tried."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from services.highs import new_solver, proven_gap
from services.pipeline.operators.layer import LayerOperator, edges, split
from services.pipeline.schedules.elastic import ElasticLayer
from services.pipeline.search.allocation import solve_allocation
from services.pipeline.search.beginnings import candidate, greedy_schedule
from services.pipeline.search.descent import descend
from services.pipeline.search.structure import sequential_schedule, solve_structure
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.periodic import Gap, shortest_period
from tests.unit.pipeline.layers import US, operator, two_lanes


def best_period_s(operators: list[LayerOperator], cuts: dict[str, tuple[int, ...]]) -> float:
    """All orders of each lane of two parts, also if one half is layers ahead of the other."""
    parts = split(operators, cuts)
    depend = [Gap(e.parent, e.child, parts[e.parent].best_s, e.lag) for e in edges(operators, parts)]
    lanes = [[n for n, part in enumerate(parts) if part.lane is lane] for lane in ResourceLane]
    pairs = [lane for lane in lanes if len(lane) == 2]
    assert all(len(lane) <= 2 for lane in lanes)
    found = []
    for laps in product((-1, 0, 1, 2), repeat=len(pairs)):
        gaps = [Gap(n, n, part.best_s, 1) for n, part in enumerate(parts)]
        for (one, other), lap in zip(pairs, laps, strict=True):
            gaps += [Gap(one, other, parts[one].best_s, lap), Gap(other, one, parts[other].best_s, 1 - lap)]
        if (result := shortest_period(len(parts), depend + gaps, 1.0)) is not None:
            found.append(result[0])
    return min(found)


@pytest.mark.parametrize("network_us", [0.25, 0.6, 1.5])
def test_stage_one_finds_what_brute_force_finds(network_us: float) -> None:
    operators = [
        operator("A", ResourceLane.COMPUTE, (0, 512), 10, 0.5, ("N", 1)),
        operator("N", ResourceLane.NETWORK, (0, 512), 5, network_us, ("A", 0)),
    ]
    wanted_s = min(
        best_period_s(operators, {"A": (a,), "N": (n,)}) for a, n in product((128, 256, 384), (128, 256, 384))
    )
    cuts = {"A": (128,), "N": (384,)}
    found = solve_structure(operators, cuts, sequential_schedule(split(operators, cuts)), 128, time_limit_s=20.0)
    assert found.schedule.period_s == pytest.approx(wanted_s, rel=1e-4)
    assert found.gap <= 1e-4
    found.schedule.check(found.edges, None)


def test_stage_one_keeps_dependencies_of_parts_that_intersect() -> None:
    """With one part each nothing can overlap: the layer takes the sum."""
    operators = two_lanes(256)
    known = sequential_schedule(split(operators, {}))
    found = solve_structure(operators, {}, known, 128, time_limit_s=5.0)
    assert found.schedule.period_s == pytest.approx((138 + 69) * US, rel=1e-6)


def test_stage_two_finds_what_brute_force_finds() -> None:
    # A product of 100 µs and an attention of 80 µs of the same layer; the next layer's product may overlap it
    operators = [
        operator("A", ResourceLane.COMPUTE, (0, 128), 100, 0),
        operator("M", ResourceLane.MEMORY, (0, 128), 80, 0, ("A", 0)),
    ]
    parts = split(operators, {})
    depend = edges(operators, parts)
    num_layers = 50
    layers_s = []
    for a, m in product(TABLE_3.shares, TABLE_3.shares):
        a_s, m_s = 100 * US / a, 80 * US / TABLE_3.performance(ResourceLane.MEMORY, m)
        period_s = max(a_s, m_s) if a + m <= 1 + 1e-9 else a_s + m_s
        layers_s.append((num_layers - 1) * period_s + a_s + m_s)
    known = sequential_schedule(parts)
    assert known.makespan_s(num_layers) == pytest.approx(50 * 180 * US)
    found = solve_allocation(known, depend, TABLE_3, num_layers, time_limit_s=10.0)
    assert found.schedule.makespan_s(num_layers) == pytest.approx(min(layers_s), rel=1e-3)
    assert found.gap <= 1e-3
    found.schedule.check(depend, TABLE_3)
    assert {slot.part.operator: slot.share for slot in found.schedule.slots} == {"A": 0.7, "M": 0.3}
    assert found.schedule.period_s == pytest.approx(80 * US / 0.55, rel=1e-3)


def test_stage_two_with_three_lanes_keeps_the_sum_below_one() -> None:
    operators = [
        operator("A", ResourceLane.COMPUTE, (0, 128), 100, 0),
        operator("M", ResourceLane.MEMORY, (0, 128), 60, 0, ("A", 0)),
        operator("N", ResourceLane.NETWORK, (0, 128), 60, 0, ("A", 0)),
    ]
    parts = split(operators, {})
    depend = edges(operators, parts)
    known = sequential_schedule(parts)
    found = solve_allocation(known, depend, TABLE_3, 50, time_limit_s=20.0)
    found.schedule.check(depend, TABLE_3)
    # no order is better than all three at once: the sum of R D / P(R) is a bound, with the best rate of each
    bound_s = 100 * US + 60 * US * 0.4 / 0.8 + 60 * US * 0.1 / 0.3
    assert bound_s <= found.schedule.period_s < known.period_s


def test_annealing_is_deterministic_and_keeps_the_rules() -> None:
    operators = two_lanes(512)
    cuts: dict[str, tuple[int, ...]] = {"A": (256,), "N": (256,)}
    layer = ElasticLayer(operators, TABLE_3)
    first = candidate(cuts, greedy_schedule(operators, cuts), TABLE_3)
    found = descend([(layer, first), (layer, first)], 600, 128)
    best = found[0]
    best.schedule.check(layer.edges(best.candidate), TABLE_3)
    assert best.schedule.period_s < sequential_schedule(split(operators, cuts)).period_s
    again = descend([(layer, first), (layer, first)], 600, 128)
    assert [(one.candidate, one.schedule) for one in again] == [(one.candidate, one.schedule) for one in found]


def test_annealing_comes_near_the_program_of_stage_two() -> None:
    # as above: a product of 100 µs and an attention of 80 µs take 80 / .55 with .7 and .3 of the device
    operators = [
        operator("A", ResourceLane.COMPUTE, (0, 128), 100, 0),
        operator("M", ResourceLane.MEMORY, (0, 128), 80, 0, ("A", 0)),
    ]
    first = candidate({"A": (), "M": ()}, greedy_schedule(operators, {}), TABLE_3)
    (found,) = descend([(ElasticLayer(operators, TABLE_3), first)], 300, 128)
    assert found.schedule.period_s == pytest.approx(80 * US / 0.55, rel=1e-3)


def test_a_gap_that_nobody_knows_is_the_largest_and_a_number_of_json() -> None:
    """A search whose time ended before a bound was found has told an infinite one, which no JSON has."""
    solver = new_solver(1e-4, time_limit_s=0.0)
    variables = [solver.addBinary() for _ in range(30)]
    for one, other in pairwise(variables):
        solver.addConstr(one + other >= 1)
    solver.minimize(solver.qsum(variables))
    solver.run()
    assert proven_gap(solver) == 1.0
