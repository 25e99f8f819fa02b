"""Draws what ablation.py measured: `python benchmarks/qlm/ablation_plot.py RESULTS.json… FILE.png`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from attainment_plot import COLOURS
from averages import averaged
from matplotlib.figure import Figure
from runs import POLICIES, read_results

TITLES = {
    "operations": "serving operations off",
    "mixes": "devices of equal price",
    "mega": "share of mega prompts",
    "models": "12 models, by number of devices",
    "delta": "δ",
}
NUM_COLUMNS = 3
PANEL_IN = (4.2, 3.4)


def plot(studies: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """A panel a study: promises kept, by case and policy; of tenants, who waits how long."""
    num_rows = -(-len(studies) // NUM_COLUMNS)
    size_in = NUM_COLUMNS * PANEL_IN[0], num_rows * PANEL_IN[1]
    figure = Figure(figsize=size_in, layout="constrained")
    panels = figure.subplots(num_rows, NUM_COLUMNS, squeeze=False).flat
    for axes, (study, runs) in zip(panels, studies.items(), strict=False):
        rows = averaged(runs)
        if study == "tenants":
            _waits(axes, rows)
        else:
            _kept(axes, TITLES[study], rows)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(figure.axes)[len(studies) :]:
        axes.set_axis_off()
    figure.savefig(file, dpi=120)


def _kept(axes: Any, title: str, rows: list[dict[str, Any]]) -> None:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    policies = [policy for policy in POLICIES if any(row["policy"] == policy for row in rows)]
    width = 0.8 / len(policies)
    for number, policy in enumerate(policies):
        kept = {row["label"]: row["slo_attainment"] for row in rows if row["policy"] == policy}
        offset = (number + 0.5) * width - 0.4
        places = [place + offset for place, label in enumerate(labels) if label in kept]
        shares = [kept[label] for label in labels if label in kept]
        bars = axes.bar(places, shares, width, color=COLOURS[policy], label=policy)
        axes.bar_label(bars, [f"{100 * share:.0f}" for share in shares], fontsize=7)
    axes.set_xticks(range(len(labels)), [label.replace("no ", "no\n") for label in labels], fontsize=8)
    axes.set(title=title, ylabel="promises kept", ylim=(0, 1.08))
    if len(policies) > 1:
        axes.legend(fontsize=7, loc="lower center", ncols=len(policies))


def _waits(axes: Any, rows: list[dict[str, Any]]) -> None:
    for number, tenant in enumerate(("quiet", "flood")):
        waits_s = [row[f"{tenant}_ttft_mean_s"] for row in rows]
        bars = axes.bar(
            [place + 0.4 * number - 0.2 for place in range(len(rows))], waits_s, 0.4, label=f"{tenant} tenant"
        )
        axes.bar_label(bars, [f"{wait_s:.1f}" for wait_s in waits_s], fontsize=7)
    axes.set_xticks(range(len(rows)), [row["label"] for row in rows], fontsize=8)
    axes.set(title="one tenant floods", ylabel="mean TTFT, s")
    axes.legend(frameon=False, fontsize=7)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    found = {study: rows for one in read_results(sys.argv[1:-1]) for study, rows in one["studies"].items()}
    plot(found, Path(sys.argv[-1]))
