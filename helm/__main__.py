"""`python -m helm` writes the chart's schema, where it follows the code, its users of Redis, and its README."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from helm.cluster_schema import Schema, with_cluster_sections
from helm.readme import readme
from shared.bus.redis_roles import acl_file

HERE = Path(__file__).parent
CHART = HERE / "treadle"
SCHEMA = CHART / "values.schema.json"
README = HERE / "README.md"
USERS = CHART / "redis-users.acl"


def current_schema() -> Schema:
    """The schema as it should be."""
    return with_cluster_sections(json.loads(SCHEMA.read_text("utf-8")))


def schema_text(schema: Schema) -> str:
    """How the file is written."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def current_users() -> str:
    """Users of Redis; the name between two @ stands for the digest of a password."""
    return acl_file(lambda role: f"#@{role}@")


def current_readme() -> str:
    """The README as it should be."""
    introduction = (HERE / "introduction.md").read_text("utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return readme(introduction, values, current_schema())


if __name__ == "__main__":
    USERS.write_text(current_users(), "utf-8")
    SCHEMA.write_text(schema_text(current_schema()), "utf-8")
    README.write_text(current_readme(), "utf-8")
