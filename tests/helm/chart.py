"""The rendered chart as objects, and ways to find things in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import yaml

from shared.config.config import ClusterConfig, parse_config
from tests.helm import engine

Object = dict[str, Any]
Values = dict[str, Any]

FOLDER = Path(__file__).parent / "values"
VALUES: dict[str, Values] = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*"))}
DEFAULTS: Values = yaml.safe_load((engine.CHART / "values.yaml").read_text("utf-8"))
WORKLOADS = ("Deployment", "StatefulSet")
POD_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}


class Chart:
    """The chart, rendered by Helm; equal values are rendered once."""

    def __init__(self, process: Executor) -> None:
        self._process = process
        self._rendered: dict[str, dict[str, str]] = {}
        self._parsed: dict[str, list[Object]] = {}

    def files(self, values: Values, release: str = engine.RELEASE) -> dict[str, str]:
        """Path below ``templates/`` → text; `ValueError` with Helm's words when it refuses."""
        key = _key(values, release)
        if key not in self._rendered:
            self._rendered[key] = self._process.submit(engine.render, values, release).result()
        return self._rendered[key]

    def objects(self, values: Values, release: str = engine.RELEASE) -> list[Object]:
        """All objects, in the order of their files; to be read only."""
        key = _key(values, release)
        if key not in self._parsed:
            files = sorted(self.files(values, release).items())
            text = "\n---\n".join(text for path, text in files if path != "NOTES.txt")
            self._parsed[key] = [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]
        return self._parsed[key]

    def lint(self, values: Values) -> list[str]:
        """What is wrong with the chart, by `helm lint --strict`."""
        return self._process.submit(engine.lint, values).result()


def _key(values: Values, release: str) -> str:
    return json.dumps([values, release], sort_keys=True)


def of_kind(objects: list[Object], *kinds: str) -> dict[str, Object]:
    """Name → object."""
    return {found["metadata"]["name"]: found for found in objects if found["kind"] in kinds}


def pod_templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod that the chart brings about, by the name of its object: metadata and spec."""
    for name, workload in of_kind(objects, *WORKLOADS).items():
        yield name, workload["spec"]["template"]
    yield from of_kind(objects, "Pod").items()


def processes(objects: list[Object]) -> dict[str, Object]:
    """Workload → the one container that it runs."""
    return {
        owner: found["spec"]["template"]["spec"]["containers"][0]
        for owner, found in of_kind(objects, *WORKLOADS).items()
    }


def pools(objects: list[Object]) -> dict[str, Object]:
    """The StatefulSets of nodes."""
    others = ("treadle-redis", "treadle-batches")
    return {owner: found for owner, found in of_kind(objects, "StatefulSet").items() if owner not in others}


def containers(pod: Object) -> list[Object]:
    """All containers of a pod, those before its start first."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment(container: Object) -> dict[str, Any]:
    """Name → value, or where it comes from."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}


def cluster_text(objects: list[Object]) -> str:
    """The cluster.yaml that all processes read."""
    (text,) = (found["data"]["cluster.yaml"] for found in objects if "cluster.yaml" in (found.get("data") or {}))
    assert isinstance(text, str)
    return text


def cluster(objects: list[Object]) -> ClusterConfig:
    """The same as the processes understand it."""
    return parse_config(cluster_text(objects), "cluster.yaml")


def with_value(values: Values, path: str, value: Any) -> Values:
    """``values`` with another value at a dotted path."""
    first, _, rest = path.partition(".")
    return {**values, first: with_value(values.get(first) or {}, rest, value) if rest else value}
