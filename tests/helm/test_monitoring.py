"""What Prometheus and Grafana are given is what lies in the chart, and every process is scraped."""

from __future__ import annotations

import json

import yaml

from shared.config.config import ADMIN_SERVICES, BATCHES
from tests.helm import engine
from tests.helm.chart import VALUES, Chart, of_kind, pod_templates, with_value

DASHBOARDS = sorted((engine.CHART / "dashboards").glob("*.json"))


def test_the_rules_are_those_of_the_file(chart: Chart) -> None:
    (rule,) = of_kind(chart.objects(VALUES["everything"]), "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((engine.CHART / "alerts.yaml").read_text("utf-8"))
    assert rule["spec"]["groups"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_lead_to_where_the_runbook_is_published(chart: Chart) -> None:
    values = with_value(VALUES["everything"], "prometheusRule.runbookUrl", "https://docs.example/operations.md")
    (rule,) = of_kind(chart.objects(values), "PrometheusRule").values()
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert alerts
    for alert in alerts:
        anchor = alert["alert"].lower()
        assert alert["annotations"]["runbook_url"] == f"https://docs.example/operations.md#{anchor}"


def test_the_dashboards_are_those_of_the_folder(chart: Chart) -> None:
    objects = chart.objects(VALUES["everything"])
    found = [one for one in of_kind(objects, "ConfigMap").values() if "grafana_dashboard" in one["metadata"]["labels"]]
    shown = {file: json.loads(text) for one in found for file, text in one["data"].items()}
    assert shown == {path.name: json.loads(path.read_text("utf-8")) for path in DASHBOARDS}
    assert len(shown) == len(found) >= 3


def test_every_process_is_scraped_where_it_answers(chart: Chart) -> None:
    objects = chart.objects(VALUES["everything"])
    (monitor,) = of_kind(objects, "ServiceMonitor").values()
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    ports = [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]]
    scraped = set()
    for service in of_kind(objects, "Service").values():
        if wanted <= service["metadata"]["labels"].items():
            assert [port["name"] for port in service["spec"]["ports"] if port["name"] in ports]
            selector = service["spec"]["selector"].items()
            scraped |= {owner for owner, pod in pod_templates(objects) if selector <= pod["metadata"]["labels"].items()}
    services = {f"treadle-{service}" for service in (*ADMIN_SERVICES, BATCHES)}
    assert scraped == {"treadle-small", "treadle-spare", *services}


def test_our_labels_come_before_those_of_the_target(chart: Chart) -> None:
    """The alerts speak of `service` as our processes do; Prometheus's operator calls the Service so."""
    (monitor,) = of_kind(chart.objects(VALUES["everything"]), "ServiceMonitor").values()
    assert all(endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"])
