"""Policies under pressure on a predicted device, and what their rows come to."""

from __future__ import annotations

import pytest

from cli.bench.memory.memory_summary import summary
from gpu_node.bench.memory.__main__ import _row
from gpu_node.bench.memory.cases import POLICIES, Case, PressurePolicy, run_predicted
from gpu_node.bench.memory.workload import requests
from gpu_node.bench.report import MemoryRow


def rows(form: str, input_tokens: int = 17) -> list[MemoryRow]:
    cases = [Case(form, "a800-pcie", "opt-13b", input_tokens, 64, policy, 60) for policy in POLICIES]  # type: ignore[arg-type]
    return [_row(case, run_predicted(case, 0, lambda _: None)) for case in cases]


def test_lengths_are_those_asked_for_and_the_same_for_every_policy() -> None:
    found = requests(2000, 340, 64, seed=1)
    assert found == requests(2000, 340, 64, seed=1)
    assert sum(one.num_prompt_tokens for one in found) / len(found) == pytest.approx(340, rel=0.1)
    assert max(one.num_output_tokens for one in found) == 64


@pytest.mark.parametrize("form", ["paper", "chunked"])
def test_each_policy_does_what_it_is_called(form: str) -> None:
    by_policy = {(row.policy, row.order, row.admission): row for row in rows(form)}
    recompute = by_policy["recompute", "fcfs", "greedy"]
    assert recompute.preemptions == recompute.recomputed > 0
    swap_only = by_policy["swap_only", "fcfs", "greedy"]
    assert swap_only.recomputed == 0
    adaptive = by_policy["adaptive", "fcfs", "greedy"]
    assert adaptive.swapped + adaptive.recomputed == adaptive.preemptions > 0
    assert adaptive.requests_per_s > swap_only.requests_per_s


def test_ratios_are_of_the_same_load() -> None:
    def row(policy: PressurePolicy, requests_per_s: float, turnaround: float) -> MemoryRow:
        return MemoryRow(
            "paper", "d", "m", 17, 64, policy.preemption, policy.order, policy.admission, 60,
            requests_per_s, turnaround, 3, 2, 1, 0.001,
        )  # fmt: skip

    rates = {
        PressurePolicy("recompute"): (10.0, 4.0),
        PressurePolicy("swap_only"): (5.0, 4.0),
        PressurePolicy("swap"): (11.0, 4.0),
        PressurePolicy("adaptive"): (12.0, 4.0),
        PressurePolicy("adaptive", order="fair"): (9.0, 3.0),
        PressurePolicy("adaptive", admission="peak"): (8.0, 4.0),
        PressurePolicy("adaptive", admission="priced"): (15.0, 4.0),
    }
    found = summary([row(policy, *values) for policy, values in rates.items()])
    assert found["adaptive_vs_best_fixed_min"] == 12 / 11
    assert found["adaptive_vs_recompute"] == {"17": 1.2}
    assert found["adaptive_vs_swap_only"] == {"17": 2.4}
    assert found["fair_turnaround_change"] == {"17": -0.25}
    assert found["fair_throughput_change"] == {"17": -0.25}
    assert found["priced_vs_best"] == 1.25
    assert found["decision_share_max"] == 0.001
