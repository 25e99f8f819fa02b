"""Draws what engine_vs_vllm.py measured: `python benchmarks/engine_vs_vllm_plot.py RESULTS.json FILE.png`."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LABELS = {"treadle": "Treadle", "vllm": "vLLM, as it comes", "vllm-tuned": "vLLM, at its best"}
COLOURS = {"treadle": "#3a7d5c", "vllm": "#c9c9c9", "vllm-tuned": "#8d8d8d"}


def check_installed() -> None:
    """`SystemExit` with what to install where matplotlib is not there."""
    if find_spec("matplotlib") is None:
        raise SystemExit("drawing needs matplotlib: python -m pip install --group bench")


def plot(results: dict[str, Any], file: Path) -> None:
    """A group of bars a point, output tokens a second; above ours, its ratio to the better of the peer's two."""
    check_installed()
    from matplotlib.figure import Figure

    points = results["points"]
    figure = Figure(figsize=(max(6.0, 1.5 + 2 * len(points)), 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(LABELS)
    for number, (engine, label) in enumerate(LABELS.items()):
        places = [place + (number - 1) * width for place in range(len(points))]
        rates = [point[engine] or 0 for point in points]  # a failed one has no bar
        bars = axes.bar(places, rates, width, label=label, color=COLOURS[engine])
        texts = [f"{rate:.0f}" if rate else "–" for rate in rates]
        if engine == "treadle":
            ratios = [point["ratio"] for point in points]
            texts = [text + (f"\n{ratio:.2f} ×" if ratio else "") for text, ratio in zip(texts, ratios, strict=True)]
        axes.bar_label(bars, texts, fontsize=8, padding=2)
    axes.set_xticks(range(len(points)), [point["point"].replace("x", " × ") for point in points])
    axes.set_xlabel("requests × prompt tokens × output tokens")
    axes.set_ylabel("output tokens a second")
    rounds = results["num_rounds"]
    turns = f"medians of {rounds} rounds in turn" if rounds > 1 else "one round"
    axes.set_title(f"{results['model']}, bfloat16, {results['num_threads']} cores; {turns}", fontsize=10)
    axes.margins(y=0.15)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=160)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
