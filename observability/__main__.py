"""``python -m observability``: writes dashboards, links of alerts, tables of metrics. A test tells when it is due."""

from __future__ import annotations

import json
from pathlib import Path

from observability.catalogue import catalogue
from observability.grafana import Dashboard, to_grafana
from observability.operators import OPERATORS
from observability.reference import with_tables
from observability.runbook import runbook, runbook_urls, with_links
from observability.users import USERS

ROOT = Path(__file__).parents[1]
DASHBOARDS = ROOT / "helm" / "treadle" / "dashboards"
ALERTS = ROOT / "helm" / "treadle" / "alerts.yaml"
PAGE = ROOT / "docs" / "operations.md"


def text_of(dashboard: Dashboard) -> str:
    """What stands in its file."""
    return json.dumps(to_grafana(dashboard), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all files."""
    page = with_tables(PAGE.read_text("utf-8"), catalogue())
    PAGE.write_text(page, "utf-8")
    explained = runbook(page)
    for dashboard in (USERS, OPERATORS, explained):
        (DASHBOARDS / f"{dashboard.uid}.json").write_text(text_of(dashboard), "utf-8")
    ALERTS.write_text(with_links(ALERTS.read_text("utf-8"), runbook_urls(explained)), "utf-8")


if __name__ == "__main__":
    main()
