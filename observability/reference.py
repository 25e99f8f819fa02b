"""The tables of metrics in docs/operations.md, written from the catalogue."""

from __future__ import annotations

from itertools import groupby

from observability.catalogue import Family

BEGIN = "<!-- begin: metrics, written by `python -m observability` -->"
END = "<!-- end: metrics -->"


class MarkersMissingError(ValueError):
    """The page has no place for the tables."""


def with_tables(page: str, families: list[Family]) -> str:
    """The page with the tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersMissingError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{_tables(families)}\n{END}{after}"


def _tables(families: list[Family]) -> str:
    lines = []
    for process, of_process in groupby(families, key=lambda family: family.process):
        lines += [
            f"**{process[0].upper()}{process[1:]}**",
            "",
            "| metric | type | labels | what it says |",
            "|---|---|---|---|",
        ]
        lines += [_line(family) for family in of_process]
        lines.append("")
    return "\n".join(lines)


def _line(family: Family) -> str:
    name = family.name + "_total" if family.kind == "counter" else family.name
    labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
    return f"| `{name}` | {family.kind} | {labels} | {family.description} |"
