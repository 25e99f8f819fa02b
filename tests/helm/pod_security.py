"""The profile `restricted` of the Pod Security Standards, all of its rules and those of `baseline` that it includes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
PROFILES = {"RuntimeDefault", "Localhost"}
APP_ARMOR = {*PROFILES, None}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t", None}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}


def violations(spec: Object) -> list[str]:
    """What a pod's spec does that the profile forbids, each rule by the field that breaks it."""
    return [*_of_pod(spec), *(text for name, container in _containers(spec) for text in _of(name, container, spec))]


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group, []):
            yield container["name"], container


def _of_pod(spec: Object) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            yield f"volumes.{volume['name']}: {', '.join(sorted(kinds))}"
    security = spec.get("securityContext", {})
    yield from (f"sysctls.{entry['name']}" for entry in security.get("sysctls", []) if entry["name"] not in SYSCTLS)
    yield from _of_both("pod", security)


def _of(name: str, container: Object, spec: Object) -> Iterator[str]:
    """Of a container; what it leaves open is said by its pod."""
    own, pod = container.get("securityContext", {}), spec.get("securityContext", {})
    yield from _of_both(name, own)
    if own.get("privileged"):
        yield f"{name}.privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}.allowPrivilegeEscalation"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}.procMount"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name}.capabilities.drop"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"{name}.capabilities.add"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name}.runAsNonRoot"
    if own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in PROFILES:
        yield f"{name}.seccompProfile"
    yield from (f"{name}.hostPort" for port in container.get("ports", []) if port.get("hostPort"))
    probes = [container.get(f"{kind}Probe", {}) for kind in ("startup", "liveness", "readiness")]
    hooks = container.get("lifecycle", {}).values()
    for action in [*probes, *hooks]:
        if action.get("httpGet", {}).get("host") or action.get("tcpSocket", {}).get("host"):
            yield f"{name}.host"


def _of_both(name: str, security: Object) -> Iterator[str]:
    """What the security contexts of pods and of containers have in common."""
    if security.get("runAsUser") == 0:
        yield f"{name}.runAsUser"
    if security.get("windowsOptions", {}).get("hostProcess"):
        yield f"{name}.hostProcess"
    if security.get("appArmorProfile", {}).get("type") not in APP_ARMOR:
        yield f"{name}.appArmorProfile"
    labels = security.get("seLinuxOptions", {})
    if labels.get("type") not in SELINUX_TYPES or labels.get("user") or labels.get("role"):
        yield f"{name}.seLinuxOptions"
    if security.get("seccompProfile", {}).get("type", "RuntimeDefault") not in PROFILES:
        yield f"{name}.seccompProfile"
