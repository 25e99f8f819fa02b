"""The few shapes of PromQL that the panels have. ``chosen`` is a selector with its braces."""

from __future__ import annotations

WINDOW = "$__rate_interval"  # Grafana's: long enough for four scrapes


def rate(metric: str, *by: str, chosen: str = "") -> str:
    """Increase a second, all series together or gathered by labels."""
    return f"{_sum(by)}(rate({metric}{chosen}[{WINDOW}]))"


def increase(metric: str, *by: str, chosen: str = "", window: str = WINDOW) -> str:
    """Increase within the window."""
    return f"{_sum(by)}(increase({metric}{chosen}[{window}]))"


def quantile(share: float, histogram: str, *by: str, chosen: str = "") -> str:
    """Of a histogram's observations."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', 'le', *by, chosen=chosen)})"


def _sum(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)}) " if by else "sum"
