"""Dashboards, alerts and the page for operators name what the code exports, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from observability.__main__ import ALERTS, DASHBOARDS, PAGE, text_of
from observability.catalogue import Family, catalogue
from observability.grafana import NUM_COLUMNS, Dashboard, to_grafana
from observability.operators import OPERATORS
from observability.reference import BEGIN, END, MarkersMissingError, with_tables
from observability.runbook import runbook, runbook_urls, with_links
from observability.users import USERS
from tests.unit.observability.promql import labels_chosen, labels_grouped, metrics_in

RULE_TESTS = Path(__file__).parent / "alerts_test.yaml"
REDO = "run `python -m observability`"
FAMILIES = catalogue()
OF_SAMPLE = {sample: family for family in FAMILIES for sample in family.samples}
TARGET_LABELS = {"job", "instance", "le"}  # of Prometheus itself
SEVERITIES = {"critical", "warning", "info"}

RUNBOOK = runbook(PAGE.read_text("utf-8"))

each = pytest.mark.parametrize("dashboard", [USERS, OPERATORS, RUNBOOK], ids=lambda one: one.uid)


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    panels = [query.expr for dashboard in (USERS, OPERATORS) for panel in dashboard.panels for query in panel.queries]
    variables = [variable.query for dashboard in (USERS, OPERATORS) for variable in dashboard.variables]
    return [*panels, *variables, *(alert["expr"] for alert in alerts())]


def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- the catalogue --------------------------------------------------------------------------------------------------


def test_a_name_stands_for_one_metric_with_base_units() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names)), "each is exported by one kind of process"
    for family in FAMILIES:
        assert family.name.startswith(("treadle_", "vllm:")), family
        assert not re.search(r"_(ms|minutes|kb|mb|percent)$", family.name), family
        assert family.description, family


def test_the_names_that_dashboards_of_engines_know_are_there() -> None:
    assert {family.name for family in FAMILIES if family.name.startswith("vllm:")} == {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_preemptions",
        "vllm:kv_cache_usage_perc",
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:prompt_tokens",
        "vllm:generation_tokens",
        "vllm:prefix_cache_queries",
        "vllm:prefix_cache_hits",
        "vllm:spec_decode_num_draft_tokens",
        "vllm:spec_decode_num_accepted_tokens",
    }


# --- queries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", queries())
def test_a_query_names_what_is_exported(query: str) -> None:
    named = metrics_in(query)
    assert named, query
    assert named <= OF_SAMPLE.keys(), query
    for metric, labels in labels_chosen(query):
        assert set(labels) <= {*OF_SAMPLE[metric].labels, *TARGET_LABELS}, query
    exported = {label for metric in named for label in OF_SAMPLE[metric].labels}
    assert labels_grouped(query) <= exported | TARGET_LABELS, query


def test_every_metric_is_shown_or_is_a_part_of_one_that_is() -> None:
    shown = {OF_SAMPLE[metric] for query in queries() for metric in metrics_in(query)}
    assert {family.name for family in FAMILIES if family not in shown} == {
        "treadle_node_output_tokens",  # vllm:generation_tokens by another name
        "treadle_queue_nodes",  # treadle_nodes, as the queue manager has heard by now
        "vllm:e2e_request_latency_seconds",  # for dashboards of others; clients' times are the gateway's
    }


# --- dashboards -----------------------------------------------------------------------------------------------------


@each
def test_the_file_is_what_the_tables_make(dashboard: Dashboard) -> None:
    assert (DASHBOARDS / f"{dashboard.uid}.json").read_text("utf-8") == text_of(dashboard), REDO


@each
def test_panels_have_places_of_their_own_and_all_their_queries(dashboard: Dashboard) -> None:
    model = json.loads(text_of(dashboard))
    panels = model["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    cells = [
        (x, y)
        for panel in panels
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
    assert all(0 <= x < NUM_COLUMNS for x, _ in cells)
    shown = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert shown == [query.expr for panel in dashboard.panels for query in panel.queries]


@each
def test_variables_that_are_used_are_there_and_the_other_way_round(dashboard: Dashboard) -> None:
    text = text_of(dashboard)
    used = set(re.findall(r"\$\{?([a-z_]+)", text)) - {"__rate_interval", "__range", "__all"}
    offered = {variable["name"] for variable in to_grafana(dashboard)["templating"]["list"]}
    assert used == offered


# --- alerts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_happens_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in SEVERITIES
    annotations = alert["annotations"]
    assert {"summary", "description", "runbook_url"} == set(annotations)
    assert annotations["runbook_url"] == runbook_urls(RUNBOOK)[alert["alert"]], REDO
    assert alert["alert"].lower() in anchors(PAGE.read_text("utf-8")), "where the page is published"


def test_the_runbook_says_what_the_page_says_of_an_alert() -> None:
    alerts = "### TreadleX\n\nLook at\n[the log](#log).\n\n- Why?\n\n### TreadleY\n\nWait.\n"
    dashboard = runbook(f"# Operations\n\n## Alerts\n\n{alerts}\n## Metrics\n")
    assert [(panel.title, panel.description) for panel in dashboard.panels] == [
        ("TreadleX", "Look at\nthe log.\n\n- Why?"),
        ("TreadleY", "Wait."),
    ]
    assert to_grafana(dashboard)["panels"][1]["options"] == {"mode": "markdown", "content": "Wait."}


def test_links_of_alerts_follow_their_panels() -> None:
    rules = "- alert: A\n  for: 1m\n  runbook_url: old\n- alert: B\n  runbook_url: older\n"
    urls = {"A": "/d/r?viewPanel=1", "B": "/d/r?viewPanel=2"}
    assert with_links(rules, urls) == (
        "- alert: A\n  for: 1m\n  runbook_url: /d/r?viewPanel=1\n- alert: B\n  runbook_url: /d/r?viewPanel=2\n"
    )


def test_the_page_explains_no_alert_that_is_not_there() -> None:
    explained = re.findall(r"^#+ (Treadle\w+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert explained == [alert["alert"] for alert in alerts()]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (of Prometheus) is not installed")
@pytest.mark.parametrize("command", [("check", "rules", ALERTS), ("test", "rules", RULE_TESTS)], ids=lambda one: one[0])
def test_prometheus_reads_the_rules_and_they_fire(command: tuple[str, str, Path]) -> None:
    done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the page for operators -----------------------------------------------------------------------------------------


def test_the_tables_of_metrics_are_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page, FAMILIES) == page, REDO


def test_a_metric_is_a_line_of_the_table_of_its_process() -> None:
    family = Family("node", "treadle_x", "counter", ("model", "tier"), "What it is")
    page = with_tables(f"before\n{BEGIN}\n{END}\nafter\n", [family])
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "**Node**" in page
    assert "| `treadle_x_total` | counter | `model`, `tier` | What it is |" in page
    assert with_tables(page, [family]) == page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(MarkersMissingError, match="begin: metrics"):
        with_tables("no marks", FAMILIES)
