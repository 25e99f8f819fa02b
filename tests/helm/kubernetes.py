"""Kubernetes's schemas of several versions, and those of the custom resources that the chart uses."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.helm.custom_resources import CUSTOM_RESOURCES

VERSIONS = ("1.30.0", "1.34.0", "1.37.0")  # the oldest that Chart.yaml allows, one between, the newest


def problems(found: dict[str, Any], version: str) -> list[str]:
    """What is wrong with an object, unknown fields included, each with its place."""
    name = f"{found['kind']}/{found['metadata']['name']}"
    errors = _validator(found["apiVersion"], found["kind"], version).iter_errors(found)
    return [f"{name}: {'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


@cache
def _validator(api_version: str, kind: str, version: str) -> Draft202012Validator:
    if (api_version, kind) in CUSTOM_RESOURCES:
        return Draft202012Validator(CUSTOM_RESOURCES[api_version, kind])
    group, _, number = api_version.rpartition("/")
    file = "-".join(filter(None, [kind.lower(), group.split(".")[0], number]))
    return Draft202012Validator(_schema(version, file), registry=_definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    """What the schemas of one version refer to."""
    return Resource.from_contents(_schema(version, "_definitions")) @ Registry()


def _schema(version: str, file: str) -> dict[str, Any]:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    schema: dict[str, Any] = json.loads((folder / f"{file}.json").read_text("utf-8"))
    return schema
