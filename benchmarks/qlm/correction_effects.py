"""By how much each correction moves each figure, and whether that pays."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kept_rows import Row
from rich.table import Table

from shared.config.services.corrections import Correction

LEAST_R2, LEAST_COVERAGE, LEAST_KEPT = 0.005, 0.02, 0.003
NUM_DIGITS = 4


def effects(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """By correction and run, by how much a figure is higher with it than without: the mean over seeds, and all of them.

    R² is that over 100 waiting, where a run has any, else that of all waits; and that of places (`r2_of_places`).
    """
    by_key = {(row["variant"], row["run"], row["seed"]): row for row in rows}
    found: dict[str, dict[str, Row]] = {}
    for one in Correction:
        for run in dict.fromkeys(row["run"] for row in rows):
            seeds = sorted({row["seed"] for row in rows if row["run"] == run and row["variant"] == f"without {one}"})
            pairs = [(by_key["all", run, seed], by_key[f"without {one}", run, seed]) for seed in seeds]
            if pairs:
                found.setdefault(one.value, {})[run] = {
                    name: _difference([(_figure(on, name), _figure(off, name)) for on, off in pairs])
                    for name in ("r2_over_100", "r2_places", "coverage_p90", "kept", "answers_per_s", "ttft_p99_s")
                }
    return found


def _figure(row: Row, name: str) -> float | None:
    value: float | None = row.get(name)
    return row["r2"] if name == "r2_over_100" and value is None else value


def _difference(pairs: Sequence[tuple[float | None, float | None]]) -> Row | None:
    differences = [on - off for on, off in pairs if on is not None and off is not None]
    if not differences:
        return None
    return {
        "mean": round(statistics.mean(differences), NUM_DIGITS),
        "seeds": [round(one, NUM_DIGITS) for one in differences],
    }


def pays(of_runs: dict[str, Row]) -> bool:
    """Whether it moves anything, in any run."""
    least = {"r2_over_100": LEAST_R2, "r2_places": LEAST_R2, "coverage_p90": LEAST_COVERAGE, "kept": LEAST_KEPT}
    return any(
        figures[name] is not None and abs(figures[name]["mean"]) >= bound
        for figures in of_runs.values()
        for name, bound in least.items()
    )


def table_of(rows: Sequence[Row]) -> Table:
    """A line a variant and run, over the seeds."""
    table = Table(
        "run", "variant", "R² over 100", "R²", "R² of places", "bound", "ratio", "kept", "answers/s", "TTFT p99"
    )
    keys = dict.fromkeys((row["label"], row["variant"]) for row in rows)
    for label, variant in keys:
        alike = [row for row in rows if (row["label"], row["variant"]) == (label, variant)]
        figures = (
            "r2_over_100",
            "r2",
            "r2_places",
            "coverage_p90",
            "median_ratio",
            "kept",
            "answers_per_s",
            "ttft_p99_s",
        )
        table.add_row(label, variant, *(_mean(alike, name) for name in figures))
    return table


def _mean(rows: Sequence[Row], name: str) -> str:
    known = [row[name] for row in rows if row.get(name) is not None]
    return f"{statistics.mean(known):.3f}" if known else "–"
