"""The parts of the values' schema that say what cluster.yaml takes: they come from the code that reads it."""

from __future__ import annotations

from typing import Any

from helm.field_texts import field_texts
from shared.config.config import ClusterConfig

Schema = dict[str, Any]

SECTIONS = (
    "ModelSpec",
    "AdapterSpec",
    "AdapterRoom",
    "ScoreOptions",
    "SamplingDefaults",
    "SpeculationOptions",
    "SloClass",
    "TenantSpec",
    "EngineOptions",
    "TierOptions",
    "QueueOptions",
    "OperationOptions",
    "PredictionOptions",
    "GatewayOptions",
    "BatchOptions",
    "ScalingOptions",
    "NodePool",
    "VllmOptions",
    "DurabilityOptions",
    "ApiKey",
)
NOT_IN_VALUES = {  # what the chart sets itself, and what is of use elsewhere only
    "GatewayOptions": {"host", "port", "drain_s"},
    "BatchOptions": {"enabled", "folder", "url", "gateway_url"},
    "NodePool": {"name"},
    "ScalingOptions": {"docker"},
}
PROVIDERS = ["none", "kubernetes"]  # the others start processes and containers beside the scheduler


def with_cluster_sections(schema: Schema) -> Schema:
    """``schema`` with the definitions of the cluster's sections as the code has them now."""
    sections = ClusterConfig.model_json_schema()["$defs"]
    hand_written = {name: part for name, part in schema["$defs"].items() if name not in SECTIONS}
    return {**schema, "$defs": hand_written | {name: _section(name, sections[name]) for name in SECTIONS}}


def _section(name: str, section: Schema) -> Schema:
    left_out = NOT_IN_VALUES.get(name, set())
    for field, text in field_texts(name).items():
        section["properties"][field] = dict(sorted((section["properties"][field] | {"description": text}).items()))
    section = _plain(section)
    section["properties"] = {field: part for field, part in section["properties"].items() if field not in left_out}
    if required := [field for field in section.get("required", []) if field not in left_out]:
        section["required"] = required
    else:
        section.pop("required", None)
    if name == "ScalingOptions":
        section["properties"]["provider"]["enum"] = PROVIDERS
    return section


def _plain(part: Any) -> Any:
    """Without titles, which only repeat names, and with descriptions in Markdown on one line."""
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    plain = {key: _plain(item) for key, item in part.items() if key != "title" or not isinstance(item, str)}
    if isinstance(text := plain.get("description"), str):
        plain["description"] = " ".join(text.replace("``", "`").split())
    return plain
