"""Every pod keeps to the Pod Security Standard `restricted`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.helm.chart import VALUES, Chart, containers, pod_templates
from tests.helm.pod_security import violations

GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "containers": [
        {
            "name": "c",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        }
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good pod with another value; numbers in the path count list entries."""
    pod = copy.deepcopy(GOOD)
    place: Any = pod
    *way, last = path.split(".")
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    place[last] = value
    return pod


OWN = "containers.0.securityContext"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("hostNetwork", True, ["hostNetwork"]),
        ("hostPID", True, ["hostPID"]),
        ("hostIPC", True, ["hostIPC"]),
        ("volumes", [{"name": "v", "hostPath": {"path": "/"}}], ["volumes.v: hostPath"]),
        ("volumes", [{"name": "v", "nfs": {"server": "s", "path": "/"}}], ["volumes.v: nfs"]),
        ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}], ["sysctls.kernel.msgmax"]),
        ("securityContext.sysctls", [{"name": "net.ipv4.tcp_syncookies", "value": "1"}], []),
        ("securityContext.runAsNonRoot", False, ["c.runAsNonRoot"]),
        ("securityContext.runAsUser", 0, ["pod.runAsUser"]),
        ("securityContext.seccompProfile", {"type": "Unconfined"}, ["pod.seccompProfile", "c.seccompProfile"]),
        ("securityContext.appArmorProfile", {"type": "Unconfined"}, ["pod.appArmorProfile"]),
        ("securityContext.seLinuxOptions", {"type": "spc_t"}, ["pod.seLinuxOptions"]),
        ("securityContext.seLinuxOptions", {"role": "r"}, ["pod.seLinuxOptions"]),
        ("securityContext.windowsOptions", {"hostProcess": True}, ["pod.hostProcess"]),
        (f"{OWN}.privileged", True, ["c.privileged"]),
        (f"{OWN}.allowPrivilegeEscalation", True, ["c.allowPrivilegeEscalation"]),
        (f"{OWN}.capabilities", {}, ["c.capabilities.drop"]),
        (f"{OWN}.capabilities.add", ["SYS_ADMIN"], ["c.capabilities.add"]),
        (f"{OWN}.capabilities.add", ["NET_BIND_SERVICE"], []),
        (f"{OWN}.procMount", "Unmasked", ["c.procMount"]),
        (f"{OWN}.runAsNonRoot", False, ["c.runAsNonRoot"]),
        (f"{OWN}.runAsUser", 0, ["c.runAsUser"]),
        (f"{OWN}.seccompProfile", {"type": "Unconfined"}, ["c.seccompProfile", "c.seccompProfile"]),
        ("containers.0.ports", [{"containerPort": 80, "hostPort": 80}], ["c.hostPort"]),
        ("containers.0.readinessProbe.httpGet.host", "10.0.0.1", ["c.host"]),
        ("containers.0.lifecycle", {"preStop": {"tcpSocket": {"host": "h", "port": 1}}}, ["c.host"]),
    ],
)
def test_each_rule_of_the_profile_is_checked(path: str, value: Any, expected: list[str]) -> None:
    assert violations(GOOD) == []
    assert violations(changed(path, value)) == expected


@pytest.mark.parametrize("name", VALUES)
def test_all_pods_are_restricted(chart: Chart, name: str) -> None:
    allowed = ["volumes.models: hostPath"] if name == "gpu-pools" else []  # asked for, and documented
    for owner, pod in pod_templates(chart.objects(VALUES[name])):
        found = violations(pod["spec"])
        assert found == (allowed if any("models" in volume["name"] for volume in pod["spec"]["volumes"]) else []), owner


@pytest.mark.parametrize("name", VALUES)
def test_nobody_writes_to_its_root_or_lacks_limits(chart: Chart, name: str) -> None:
    for _, pod in pod_templates(chart.objects(VALUES[name])):
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"mountPath": "/tmp", "name": "tmp"} in container["volumeMounts"]
            assert "memory" in container["resources"]["limits"]
            assert set(container["resources"]["requests"]) >= {"cpu", "memory"}


@pytest.mark.parametrize("name", VALUES)
def test_only_a_scheduler_that_scales_has_a_token(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    with_token = [owner for owner, pod in pod_templates(objects) if pod["spec"]["automountServiceAccountToken"]]
    assert with_token == (["treadle-scheduler"] if name == "everything" else [])
