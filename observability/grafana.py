"""Dashboards as tables of panels, and what Grafana makes of them (its JSON model, schema version 39)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

SCHEMA_VERSION = 39
NUM_COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHTS = {"stat": 4, "timeseries": 8, "heatmap": 8, "text": 7}


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture."""

    title: str
    description: str
    """Of a ``text``, all that it shows; Markdown."""
    unit: str
    """Grafana's name: ``s``, ``percentunit``, ``bytes``, ``reqps``, ``short``, …"""
    queries: Sequence[Query]
    kind: Literal["timeseries", "stat", "heatmap", "text"] = "timeseries"
    width: int = 8
    """Of 24 columns."""


def stat(title: str, description: str, expr: str, legend: str = "", *, unit: str = "short", width: int) -> Panel:
    """One number, or one a series."""
    return Panel(title, description, unit, [Query(expr, legend)], kind="stat", width=width)


@dataclass(frozen=True)
class Row:
    """Panels side by side, as many as fit, under one heading."""

    title: str
    """``""`` for none."""
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice on top of the dashboard: values of a label, as PromQL's ``label_values`` finds them."""

    name: str
    query: str


@dataclass(frozen=True)
class Dashboard:
    """One page."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> list[Panel]:
        """Of all rows."""
        return [panel for row in self.rows for panel in row.panels]


def to_grafana(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON that Grafana imports, or reads from a folder."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["treadle"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # the crosshair is the same in all panels
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _choices(dashboard)},
        "annotations": {"list": []},
        "links": [],
        "panels": _placed(dashboard.rows),
    }


def _choices(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Where there is nothing to ask, nobody has to say whom."""
    if not any(panel.queries for panel in dashboard.panels):
        return []
    return [_datasource(), *map(_variable, dashboard.variables)]


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.name.replace("_", " "),
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,  # with the time range: names come and go
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _placed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Panels one beside the other, in lines of 24 columns."""
    placed: list[dict[str, Any]] = []
    ids = count(1)
    y = 0
    for row in rows:
        if row.title:
            grid = {"x": 0, "y": y, "w": NUM_COLUMNS, "h": 1}
            placed.append(
                {"id": next(ids), "type": "row", "title": row.title, "collapsed": False, "gridPos": grid, "panels": []}
            )
            y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > NUM_COLUMNS:
                x, y, height = 0, y + height, 0
            grid = {"x": x, "y": y, "w": panel.width, "h": _HEIGHTS[panel.kind]}
            placed.append({"id": next(ids), "gridPos": grid} | _panel(panel))
            x, height = x + panel.width, max(height, _HEIGHTS[panel.kind])
        y += height
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    if panel.kind == "text":
        return {"type": "text", "title": panel.title, "options": {"mode": "markdown", "content": panel.description}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(panel, query, name) for query, name in zip(panel.queries, "ABCDEF", strict=False)],
        "fieldConfig": {"defaults": {"unit": panel.unit} | _DEFAULTS[panel.kind], "overrides": []},
        "options": _OPTIONS[panel.kind] | ({"yAxis": {"unit": panel.unit}} if panel.kind == "heatmap" else {}),
    }


def _target(panel: Panel, query: Query, name: str) -> dict[str, Any]:
    return {
        "refId": name,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "range": panel.kind != "stat",
        "instant": panel.kind == "stat",
        "format": "heatmap" if panel.kind == "heatmap" else "time_series",
    }


_DEFAULTS: dict[str, dict[str, Any]] = {
    "stat": {"min": 0},
    "timeseries": {"custom": {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}},
    "heatmap": {},
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "auto"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "heatmap": {"calculate": False, "color": {"mode": "scheme", "scheme": "Blues"}, "legend": {"show": True}},
}
