"""Draws what attainment.py measured: `python benchmarks/qlm/attainment_plot.py RESULTS.json… FILE.png`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from averages import averaged
from matplotlib.figure import Figure
from runs import read_results
from variants import VARIANTS

COLOURS = {"qlm": "#3a7d5c", "edf": "#5b8db8", "edf-affine": "#8e6bb0", "fcfs": "#8d8d8d", "shepherd": "#e28e2c"}
HEIGHT_IN = 3.2


def plot(results: list[dict[str, Any]], file: Path) -> None:
    """A column a workload and cluster: promises kept above, answers a second below."""
    figure = Figure(figsize=(max(6.0, 3.6 * len(results)), 2 * HEIGHT_IN), layout="constrained")
    axes = figure.subplots(2, len(results), squeeze=False)
    for column, result in enumerate(results):
        devices = " + ".join(f"{count} {kind}" for kind, count in result["devices"].items())
        axes[0][column].set_title(f"{Path(result['workload']).name}, {devices}", fontsize=10)
        for row, (name, label) in enumerate((("slo_attainment", "promises kept"), ("throughput_rps", "answers/s"))):
            _lines(axes[row][column], result, name)
            axes[row][column].set(ylabel=label, ylim=(0, 1.02) if row == 0 else (0, None))
        axes[1][column].set_xlabel("arrivals/s")
    axes[0][0].legend(frameon=False)
    figure.savefig(file, dpi=130)


def merged(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of one workload on the same devices become one: policies may be measured one by one."""
    found: dict[str, dict[str, Any]] = {}
    for result in results:
        key = f"{result['workload']} {sorted(result['devices'].items())}"
        if key in found:
            rows = [*found[key]["rows"], *result["rows"]]
            capacity = found[key]["capacity_rps"] or result["capacity_rps"]
            found[key] = {**result, "rows": rows, "capacity_rps": capacity}
        else:
            found[key] = result
    return list(found.values())


def _lines(axes: Any, result: dict[str, Any], name: str) -> None:
    rows = averaged(result["rows"])
    for policy, variant in VARIANTS.items():
        points = [(row["rate_rps"] or 0.0, row[name]) for row in rows if row["policy"] == policy]
        if points:
            axes.plot(
                *zip(*sorted(points), strict=True),
                marker="o",
                linestyle=_style(policy),
                color=COLOURS[variant.policy],
                label=policy,
            )
    if result["capacity_rps"]:
        axes.axvline(result["capacity_rps"], color="#bbbbbb", linestyle="--", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _style(name: str) -> str:
    """Of the lines of one policy, the one that has all operations is whole."""
    return "-" if name == VARIANTS[name].policy else ":" if name.endswith("-plain") else "--"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    plot(merged([one for found in read_results(sys.argv[1:-1]) for one in found["results"]]), Path(sys.argv[-1]))
