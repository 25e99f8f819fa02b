"""A run as a trace for the viewers of Chrome and Perfetto: a lane a device, with model loads, groups and evictions."""

from __future__ import annotations

from typing import Any

from services.simulator.simulation import SimulationRun

_PID = 1


def chrome_trace(run: SimulationRun) -> dict[str, Any]:
    """The JSON object format; times in microseconds since the start of the workload."""
    lanes = {node.node: number for number, node in enumerate(run.nodes)}
    events: list[dict[str, Any]] = []
    for node in run.nodes:
        events.append(
            {"ph": "M", "name": "thread_name", "pid": _PID, "tid": lanes[node.node], "args": {"name": node.node}}
        )
        for loading in node.loadings:
            label = f"load {loading.model} from {loading.source}"
            events.append(_span(run, lanes[node.node], "load", label, loading.start_s, loading.end_s))
    for number, stay in enumerate(run.recording.stays.values()):
        # groups overlap on a device, so each is an asynchronous pair
        common = {
            "cat": "group",
            "name": f"{stay.model} {stay.slo}",
            "id": number,
            "pid": _PID,
            "tid": lanes[stay.node],
        }
        args = {"group": stay.group, "requests": stay.num_requests}
        events.append({"ph": "b", "ts": _micros(run, stay.start_s), "args": args, **common})
        events.append({"ph": "e", "ts": _micros(run, stay.end_s), **common})
    for departure in run.recording.departures:
        name = "migration" if departure.is_migration else "eviction"
        args = {"request": departure.request_id, "kv_tokens": departure.kv_tokens}
        place = {"ts": _micros(run, departure.time_s), "pid": _PID, "tid": lanes[departure.node]}
        events.append({"ph": "i", "s": "t", "cat": "eviction", "name": name, "args": args, **place})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _span(run: SimulationRun, lane: int, category: str, name: str, start_s: float, end_s: float) -> dict[str, Any]:
    start = _micros(run, start_s)
    place = {"ts": start, "dur": _micros(run, end_s) - start, "pid": _PID, "tid": lane}
    return {"ph": "X", "cat": category, "name": name, **place}


def _micros(run: SimulationRun, time_s: float) -> int:
    return round((time_s - run.start_s) * 1e6)
