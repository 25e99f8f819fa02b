"""Numbers that stand beside those of a paper: objects with ``ours`` and ``paper``, wherever they are in a report."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def beside_table(figures: dict[str, Any]) -> Table:
    """A row for each number of each figure that the paper has too."""
    table = Table(box=None)
    for name in ("figure", "what", "ours", "paper"):
        table.add_column(name, justify="right" if name in ("ours", "paper") else "left")
    for figure, values in figures.items():
        for what, ours, paper in paper_rows(values):
            table.add_row(figure, what, f"{ours:,.4g}", _text(paper))
    return table


def paper_rows(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Every number that the paper has too: what it is, ours and the paper's."""
    if set(values) == {"ours", "paper"}:
        return _pairs(values["ours"], values["paper"], prefix)
    return [
        row
        for name, inner in values.items()
        if isinstance(inner, dict)
        for row in paper_rows(inner, f"{prefix} {name}".strip())
    ]


def _pairs(ours: Any, paper: Any, prefix: str) -> list[tuple[str, Any, Any]]:
    if not isinstance(paper, dict):
        return [(prefix, ours, paper)]
    return [row for name in paper for row in _pairs(ours[name], paper[name], f"{prefix} {name}".strip())]


def _text(paper: float | tuple[float, ...]) -> str:
    """A number, or from where to where."""
    return "–".join(f"{one:,.4g}" for one in (paper if isinstance(paper, tuple) else (paper,)))
