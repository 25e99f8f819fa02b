"""Who may open a connection to whom, as network policies say it: Kubernetes's rules for pods of one namespace."""

from __future__ import annotations

from typing import Any

from tests.helm.chart import Object, containers, of_kind, pod_templates

OUTSIDE = "outside"


def flows(objects: list[Object]) -> set[tuple[str, str, str]]:
    """(from, to, port by name) between all pods; both ends must allow it."""
    pods = dict(pod_templates(objects))
    policies = list(of_kind(objects, "NetworkPolicy").values())
    ports = {owner: _ports(pod) for owner, pod in pods.items()}
    return {
        (one, other, port)
        for one, source in pods.items()
        for other, destination in pods.items()
        for port, number in ports[other].items()
        if _allows(policies, "Egress", source, destination, port, number)
        and _allows(policies, "Ingress", destination, source, port, number)
    }


def ports_outside(objects: list[Object], owner: str) -> set[tuple[int, str]]:
    """(port, protocol) that a pod may connect to, beyond the pods of the release."""
    pod = dict(pod_templates(objects))[owner]
    rules = [rule for policy in _of(list(of_kind(objects, "NetworkPolicy").values()), pod) for rule in policy["egress"]]
    return {
        (port["port"], port.get("protocol", "TCP"))
        for rule in rules
        for port in rule["ports"]
        if all("podSelector" not in peer for peer in rule.get("to", []))
    }


def _ports(pod: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for part in containers(pod) for port in part.get("ports", [])}


def _of(policies: list[Object], pod: Object) -> list[Object]:
    specs = [policy["spec"] for policy in policies]
    return [spec for spec in specs if _matches(spec["podSelector"], pod["metadata"]["labels"])]


def _allows(policies: list[Object], kind: str, owner: Object, peer: Object, port: str, number: int) -> bool:
    own = [spec for spec in _of(policies, owner) if kind in spec["policyTypes"]]
    if not own:
        return True
    end = "to" if kind == "Egress" else "from"
    return any(
        any(entry["port"] in (port, number) and entry.get("protocol", "TCP") == "TCP" for entry in rule["ports"])
        and (not rule.get(end) or any(_is(one, peer) for one in rule[end]))
        for spec in own
        for rule in spec.get(kind.lower(), [])
    )


def _is(peer: Object, pod: Object) -> bool:
    """Whether a peer of a policy stands for a pod of this namespace, which has no labels here."""
    if "ipBlock" in peer:
        return False
    namespace = peer.get("namespaceSelector")
    if namespace is not None and not _matches(namespace, {}):
        return False
    return _matches(peer.get("podSelector", {}), pod["metadata"]["labels"])


def _matches(selector: Object, labels: dict[str, str]) -> bool:
    expressions: list[dict[str, Any]] = selector.get("matchExpressions", [])
    assert all(one["operator"] == "In" for one in expressions), "the only operator that the chart uses"
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )
