"""A run in one picture: attainment by class, waits and queue length over time, and what the devices did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from services.simulator.reports.report import report
from services.simulator.simulation import SimulationRun

_COLOURS = ("#5b8db8", "#e28e2c", "#6a9f58", "#c75c5c", "#8a5aa8", "#967662")
_LOAD_COLOUR = "#222222"
MAX_LANES = 40
"""Devices that are drawn; more would be lines too thin to see."""


def draw(run: SimulationRun, path: Path) -> None:
    """Write a picture in the format that the file's name says; `OSError` or `ValueError` where that cannot be."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    (attained, waits), (queue, devices) = figure.subplots(2, 2)
    _attainment(attained, report(run)["slo_attainment_by_class"])
    _waits(waits, run)
    _queue(queue, run)
    _devices(devices, run)
    figure.savefig(path)


def _attainment(axes: Any, by_class: dict[str, float]) -> None:
    axes.bar(list(by_class), list(by_class.values()), color=_COLOURS[0])
    axes.set(title="promises kept", ylim=(0, 1))


def _waits(axes: Any, run: SimulationRun) -> None:
    by_class: dict[str, list[tuple[float, float]]] = {}
    for one in run.recording.outcomes:
        if one.first_token_s is not None:
            point = one.sent_s - run.start_s, one.first_token_s - one.sent_s
            by_class.setdefault(one.request.slo, []).append(point)
    for name, colour in zip(sorted(by_class), _COLOURS, strict=False):
        times_s, waits_s = zip(*by_class[name], strict=True)
        axes.scatter(times_s, waits_s, s=3, color=colour, label=name)
    axes.set(title="wait for the first token", xlabel="arrival, s", ylabel="s")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.legend()


def _queue(axes: Any, run: SimulationRun) -> None:
    changes: list[tuple[float, int]] = []
    for one in run.recording.outcomes:
        changes += [(one.sent_s, 1), (one.first_token_s or one.finished_s or run.end_s, -1)]
    times_s, lengths, length = [0.0], [0], 0
    for time_s, change in sorted(changes):
        length += change
        times_s.append(time_s - run.start_s)
        lengths.append(length)
    axes.step(times_s, lengths, where="post", color=_COLOURS[0])
    axes.set(title="requests that wait", xlabel="s")


def _devices(axes: Any, run: SimulationRun) -> None:
    lanes = {node.node: number for number, node in enumerate(run.nodes[:MAX_LANES])}
    models = sorted({stay.model for stay in run.recording.stays.values()})
    colours = dict(zip(models, _COLOURS, strict=False))
    for stay in run.recording.stays.values():
        if stay.node in lanes:
            _bar(axes, run, lanes[stay.node], stay.start_s, stay.end_s, colours.get(stay.model, "#bbbbbb"))
    for node in run.nodes[:MAX_LANES]:
        for loading in node.loadings:
            _bar(axes, run, lanes[node.node], loading.start_s, loading.end_s, _LOAD_COLOUR)
    for model, colour in colours.items():
        axes.bar([0], [0], color=colour, label=model)
    axes.set_yticks(list(lanes.values()), list(lanes), fontsize=6)
    axes.set(title="devices; black: a model is loaded", xlabel="s")
    axes.legend()


def _bar(axes: Any, run: SimulationRun, lane: int, start_s: float, end_s: float, colour: str) -> None:
    axes.broken_barh([(start_s - run.start_s, end_s - start_s)], (lane - 0.4, 0.8), color=colour)
