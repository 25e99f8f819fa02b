"""Helm's engine as functions, to be run in a process of their own: a Go runtime brings threads that outlive no fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHART = Path(__file__).parents[2] / "helm" / "treadle"
RELEASE = "treadle"
NAMESPACE = "llm"


def render(values: dict[str, Any], release: str = RELEASE) -> dict[str, str]:
    """Path below ``templates/`` → text; `ValueError` with Helm's words when it refuses."""
    import helm_python  # not where the tests run

    try:
        with helm_python.Chart.load(CHART) as chart:
            files = chart.render(values, name=release, namespace=NAMESPACE)
    except helm_python.HelmError as error:
        raise ValueError(str(error)) from None  # Helm's own kind does not travel between processes
    prefix = "treadle/templates/"
    return {path.removeprefix(prefix): text for path, text in files.items() if text.strip()}


def lint(values: dict[str, Any]) -> list[str]:
    """What `helm lint --strict` finds, warnings and errors."""
    import helm_python

    report = helm_python.lint(CHART, values, strict=True, namespace=NAMESPACE)
    return [*report["errors"], *(message["error"] for message in report["messages"] if message["severity"] > 1)]
