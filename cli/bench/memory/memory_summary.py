"""What the rows of `treadle bench memory` come to, beside the paper's values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from gpu_node.bench.report import MemoryRow

FIXED = ("recompute", "swap_only", "swap")
PAPER_LIMIT = 64
PAPER = {
    "source": "AdaptiveLLM (2025), table 3: four models on an A800-80 PCIe, limit 64; figure 4",
    "adaptive_vs_recompute": {"17": [1.27, 1.38], "20": [1.22, 1.40], "340": [1.09, 1.17]},
    "adaptive_vs_swap_only": {"17": [1.95, 2.46], "20": [1.99, 2.55], "340": [1.64, 2.50]},
    "fair_turnaround_change": [-0.40, -0.20],
}
_Load = tuple[str, str, str, int, int]
_PolicyKey = tuple[str, str, str]


def summary(rows: Iterable[MemoryRow]) -> dict[str, Any]:
    """Ratios of rows under the same load; those by mean input are of the paper's form, limit and first model.

    Other forms' stand beside them, under their names. None where a form was not run.
    """
    loads: dict[_Load, dict[_PolicyKey, MemoryRow]] = defaultdict(dict)
    for row in rows:
        load = (row.form, row.device, row.model, row.input_tokens, row.max_tokens)
        loads[load][row.policy, row.order, row.admission] = row
    named = {form: _by_input(loads, form) for form in dict.fromkeys(form for form, *_ in loads)}
    paper = named.get("paper", {})
    return {
        "adaptive_vs_best_fixed_min": min(_vs_best(policies) for policies in loads.values()),
        **{name: {mean: values[name] for mean, values in paper.items()} for name in _RATIOS},
        "priced_vs_best": min(_priced_vs_best(policies) for policies in loads.values()),
        "decision_share_max": max(row.decision_share for policies in loads.values() for row in policies.values()),
        "forms": {form: values for form, values in named.items() if form != "paper"},
        "paper": PAPER,
    }


def _by_input(loads: dict[_Load, dict[_PolicyKey, MemoryRow]], form: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for load, policies in loads.items():
        if load[0] == form and load[4] == PAPER_LIMIT:
            found.setdefault(str(load[3]), {name: ratio(policies) for name, ratio in _RATIOS.items()})
    return found


def _rate(policies: dict[_PolicyKey, MemoryRow], policy: str, order: str = "fcfs", admission: str = "greedy") -> float:
    return policies[policy, order, admission].requests_per_s


def _vs_best(policies: dict[_PolicyKey, MemoryRow]) -> float:
    return _rate(policies, "adaptive") / max(_rate(policies, one) for one in FIXED)


def _priced_vs_best(policies: dict[_PolicyKey, MemoryRow]) -> float:
    peak, greedy, priced = (_rate(policies, "adaptive", admission=one) for one in ("peak", "greedy", "priced"))
    return priced / max(peak, greedy)


def _turnaround_change(policies: dict[_PolicyKey, MemoryRow]) -> float:
    fair, fcfs = (policies["adaptive", order, "greedy"].weighted_turnaround for order in ("fair", "fcfs"))
    return fair / fcfs - 1


_RATIOS: dict[str, Callable[[dict[_PolicyKey, MemoryRow]], float]] = {
    "adaptive_vs_recompute": lambda rows: _rate(rows, "adaptive") / _rate(rows, "recompute"),
    "adaptive_vs_swap_only": lambda rows: _rate(rows, "adaptive") / _rate(rows, "swap_only"),
    "fair_turnaround_change": _turnaround_change,
    "fair_throughput_change": lambda rows: _rate(rows, "adaptive", "fair") / _rate(rows, "adaptive") - 1,
}
