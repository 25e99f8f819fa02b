"""Draws what scaling.py measured: `python benchmarks/qlm/scaling_plot.py RESULT.json FILE.png`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from runs import read_results
from scaling import EVERY_S

COLOURS = {"slo": "#3a7d5c", "utilization": "#e28e2c", "fixed": "#8d8d8d"}


def plot(result: dict[str, Any], file: Path) -> None:
    """Promises over node-hours, and nodes over time."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    kept, nodes = figure.subplots(1, 2, width_ratios=(2, 3))
    for policy, colour in COLOURS.items():
        rows = sorted((row for row in result["rows"] if row["policy"] == policy), key=lambda row: row["node_hours"])
        kept.plot(
            [row["node_hours"] for row in rows],
            [row["slo_attainment"] for row in rows],
            "o-" if policy != "slo" else "*",
            markersize=12 if policy == "slo" else 5,
            color=colour,
            label=policy,
        )
        for row in rows:
            text = f"≥ {row['floor']}" if policy == "slo" else f"{row['value']:g}"
            kept.annotate(text, (row["node_hours"], row["slo_attainment"]), fontsize=7, va="bottom")
            if row["seed"] == 0 and row["floor"] == 1:
                times = [number * EVERY_S / 60 for number in range(len(row["nodes"]))]
                nodes.plot(times, row["nodes"], color=colour, linewidth=1.5 if policy == "slo" else 0.7)
    kept.set(xlabel="node-hours", ylabel="promises kept", xlim=(0, None))
    kept.legend(frameon=False, fontsize=8)
    nodes.set(xlabel="minutes", ylabel="nodes", ylim=(0, None))
    figure.suptitle(f"{result['trace']}: {result['model']} on {result['device']}", fontsize=10)
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    *results, image = sys.argv[1:]
    plot(read_results(results)[0], Path(image))
