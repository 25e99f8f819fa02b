"""What the chart brings about: accepted by Kubernetes, and its parts find each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helm.chart import VALUES, WORKLOADS, Chart, Object, containers, of_kind, pod_templates, pools
from tests.helm.kubernetes import VERSIONS, problems

GOLDEN = Path(__file__).parent / "golden"
FILES_OF_THEIR_OWN = {"monitoring/dashboards.yaml", "monitoring/prometheusrule.yaml"}  # compared in test_monitoring.py

every_case = pytest.mark.parametrize("name", VALUES)


@every_case
def test_helm_finds_nothing_to_complain_about(chart: Chart, name: str) -> None:
    assert chart.lint(VALUES[name]) == []


@every_case
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_accepted_by_kubernetes(chart: Chart, name: str, version: str) -> None:
    objects = chart.objects(VALUES[name])
    assert [problem for found in objects for problem in problems(found, version)] == []


def test_the_check_of_objects_finds_what_is_wrong() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"image": "i"}]}}
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r", "labels": {}}}
    for version in VERSIONS:
        assert problems(pod, version) == ["Pod/p: spec.containers.0: 'name' is a required property"]
        assert problems(route, version) == ["HTTPRoute/r: : 'spec' is a required property"]


@every_case
def test_no_two_objects_have_one_name(chart: Chart, name: str) -> None:
    names = [(found["kind"], found["metadata"]["name"]) for found in chart.objects(VALUES[name])]
    assert sorted(set(names)) == sorted(names)
    assert all(found["metadata"]["namespace"] == "llm" for found in chart.objects(VALUES[name]))


def selected(labels: dict[str, str], objects: list[Object]) -> list[str]:
    """Owners of the pods that a selector finds."""
    return [owner for owner, pod in pod_templates(objects) if labels.items() <= pod["metadata"]["labels"].items()]


@every_case
def test_selectors_find_their_own_pods_and_no_others(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    for owner, workload in of_kind(objects, *WORKLOADS).items():
        assert selected(workload["spec"]["selector"]["matchLabels"], objects) == [owner]
    for owner, budget in of_kind(objects, "PodDisruptionBudget").items():
        assert selected(budget["spec"]["selector"]["matchLabels"], objects) == [owner]
    nodes = set(pools(objects))
    for owner, service in of_kind(objects, "Service").items():
        wanted = nodes if owner == "treadle-nodes" else {owner.removesuffix("-admin")}
        assert set(selected(service["spec"]["selector"], objects)) == wanted


@every_case
def test_ports_volumes_and_accounts_are_there(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    pods = dict(pod_templates(objects))
    for service in of_kind(objects, "Service").values():
        wanted = {port["targetPort"] for port in service["spec"]["ports"]}
        for owner in selected(service["spec"]["selector"], objects):
            assert wanted <= {port["name"] for part in containers(pods[owner]) for port in part.get("ports", [])}
    claims = {
        owner: {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for owner, workload in of_kind(objects, "StatefulSet").items()
    }
    for owner, pod in pods.items():
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | claims.get(owner, set())
        mounted = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
        assert mounted == volumes, owner
    if VALUES[name].get("serviceAccount", {}).get("create", True):
        accounts = of_kind(objects, "ServiceAccount")
        assert {pod["spec"]["serviceAccountName"] for pod in pods.values()} == set(accounts)


@every_case
def test_probes_ask_what_the_processes_answer(chart: Chart, name: str) -> None:
    for owner, workload in of_kind(chart.objects(VALUES[name]), *WORKLOADS).items():
        if owner == "treadle-redis":
            continue
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {
            "startup": {"path": "/healthz", "port": "admin"},
            "liveness": {"path": "/healthz", "port": "admin"},
            "readiness": {"path": "/readyz", "port": "admin"},
        }


@every_case
def test_renders_are_the_golden_ones(chart: Chart, name: str) -> None:
    files = {path: text for path, text in chart.files(VALUES[name]).items() if path not in FILES_OF_THEIR_OWN}
    texts = [f"# {path}\n{text.strip()}\n" for path, text in sorted(files.items())]
    rendered, golden = "\n".join(texts), GOLDEN / f"{name}.yaml"
    if os.environ.get("TREADLE_REGENERATE") and rendered != (golden.read_text("utf-8") if golden.exists() else ""):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(rendered, "utf-8")
        pytest.fail(f"{golden.name} was written anew; read the difference and run again")
    assert rendered == golden.read_text("utf-8")
