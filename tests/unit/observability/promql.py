"""What a query names, as far as a regular expression can tell: metrics, and the labels that they are chosen by."""

from __future__ import annotations

import re

_METRIC = re.compile(r"\b(?:treadle_|vllm:)[a-z0-9_]+")
_SELECTOR = re.compile(r"\b((?:treadle_|vllm:)[a-z0-9_]+)\{([^}]*)\}")
_BY = re.compile(r"\bby\s*\(([^)]*)\)")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")


def metrics_in(query: str) -> set[str]:
    """Names of samples."""
    return set(_METRIC.findall(query))


def labels_chosen(query: str) -> list[tuple[str, list[str]]]:
    """Each metric that is chosen by labels, with these."""
    return [(metric, _LABEL.findall(inside)) for metric, inside in _SELECTOR.findall(query)]


def labels_grouped(query: str) -> set[str]:
    """All labels that series are gathered by."""
    return {label.strip() for inside in _BY.findall(query) for label in inside.split(",") if label.strip()}
