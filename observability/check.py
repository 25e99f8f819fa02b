"""``python -m observability.check URL`` asks a Prometheus every query of the dashboards; it says which have no data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from urllib.parse import urlencode
from urllib.request import urlopen

from observability.grafana import Dashboard
from observability.operators import OPERATORS
from observability.users import USERS

TIMEOUT_S = 10.0
_CHOICES = {"$__rate_interval": "1m", "$__range": "15m"}


def queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Panel and query, with everything chosen."""
    choices = _CHOICES | {f"${variable.name}": ".*" for variable in dashboard.variables}
    for panel in dashboard.panels:
        for query in panel.queries:
            expr = query.expr
            for name, choice in choices.items():
                expr = expr.replace(name, choice)
            yield panel.title, expr


def num_series(url: str, expr: str) -> int:
    """How many series a query has now; an HTTP error for one that Prometheus does not understand."""
    query = urlencode({"query": expr})
    with urlopen(f"{url}/api/v1/query?{query}", timeout=TIMEOUT_S) as answer:  # noqa: S310 - the URL is the caller's own
        return len(json.load(answer)["data"]["result"])


def main(url: str) -> int:
    """One line a query; the number of those without data."""
    num_empty = 0
    for dashboard in (USERS, OPERATORS):
        for title, expr in queries(dashboard):
            found = num_series(url, expr)
            num_empty += not found
            sys.stdout.write(f"{found:4}  {dashboard.uid}  {title}{'' if found else f': {expr}'}\n")
    return num_empty


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) > 0)
