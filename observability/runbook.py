"""The dashboard behind the links of alerts: what docs/operations.md says of each, so that Grafana has it at hand."""

from __future__ import annotations

import re

from observability.grafana import Dashboard, Panel, Row, to_grafana

UID = "treadle-runbook"
_SECTION = re.compile(r"^### (Treadle\w+)\n\n(.*?)(?=\n##)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"(- alert: (\w+)\n(?: +(?!- alert).*\n)*? +runbook_url: ).*")
_LINK = re.compile(r"\[([^]]+)]\([^)]+\)")


def runbook(page: str) -> Dashboard:
    """A panel an alert, in the order of the page."""
    panels = [Panel(alert, _shown(text), "", (), kind="text", width=12) for alert, text in _SECTION.findall(page)]
    return Dashboard(
        uid=UID,
        title="Treadle: runbook",
        description="What each alert means, what to look at and what to do: the alerts' part of docs/operations.md.",
        variables=[],
        rows=[Row("", panels)],
    )


def runbook_urls(dashboard: Dashboard) -> dict[str, str]:
    """By alert, where its panel stands alone; of the Grafana that shows the dashboards, at whose root this begins."""
    return {panel["title"]: f"/d/{UID}?viewPanel={panel['id']}" for panel in to_grafana(dashboard)["panels"]}


def with_links(rules: str, urls: dict[str, str]) -> str:
    """The text of Prometheus's rules, where each alert's ``runbook_url`` leads to its panel."""
    return _URL.sub(lambda found: found[1] + urls[found[2]], rules)


def _shown(text: str) -> str:
    """Without its links, which lead to other parts of the docs; alerts are on the dashboard by their names."""
    return _LINK.sub(r"\1", text).strip()
