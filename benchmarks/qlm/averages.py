"""Runs that differ by their seeds only, as one row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def averaged(rows: Sequence[Row]) -> list[Row]:
    """A row for each label and policy, in the order of the first of each: means over its runs, figure by figure.

    ``num_runs`` says of how many; ``least_attainment`` and ``most_attainment`` between what the shares of kept promises
    lay. What is no number is that of the first run; a figure that a run does not have is left out of the mean.
    """
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["label"], row["policy"]), []).append(row)
    return [
        {name: _mean([run.get(name) for run in alike]) for name in alike[0]}
        | {
            "num_runs": len(alike),
            "least_attainment": min(run["slo_attainment"] for run in alike),
            "most_attainment": max(run["slo_attainment"] for run in alike),
        }
        for alike in runs.values()
    ]


def kept(row: Row) -> str:
    """The share of kept promises, for a table; behind it, where there are several runs, between what it lay."""
    mean = f"{row['slo_attainment']:.1%}"
    return mean if row["num_runs"] == 1 else f"{mean} ({row['least_attainment']:.1%}–{row['most_attainment']:.1%})"


def _mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _mean([value.get(name) for value in values]) for name in values[0]}
    numbers = [value for value in values if isinstance(value, int | float)]
    return statistics.mean(numbers) if numbers else values[0]
