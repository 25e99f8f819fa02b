"""Numbers that stand beside those of a paper: objects with ``ours`` and ``paper``, wherever they are in a report."""

from __future__ import annotations

from typing import Any


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
