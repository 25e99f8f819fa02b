"""The effective configuration as YAML: with secrets for the processes, masked for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import SecretStr

from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import is_fetched
from shared.config.nodes.nodes import NodeTemplate

Template = TypeVar("Template", bound=NodeTemplate)

MASK = "**********"


def masked_yaml(config: ClusterConfig) -> str:
    """Every value in force, for a person to read; secrets show as asterisks."""
    return _dump(config.model_dump(), lambda _: MASK)


def process_yaml(config: ClusterConfig) -> str:
    """What the processes of a cluster read: every value, secrets included, and paths that hold in any directory.

    The address of Redis is left out: it travels in the environment, and changes when its port is taken.
    """
    absolute = config.model_copy(
        update={
            "redis_url": None,
            "data_dir": config.data_dir.expanduser().absolute(),
            "models": [_with_absolute_sources(model) for model in config.models],
            "nodes": [_with_absolute_python(node) for node in config.nodes],
            "pools": [_with_absolute_python(pool) for pool in config.pools],
        }
    )
    return _dump(absolute.model_dump(), lambda secret: secret.get_secret_value())


def _with_absolute_sources(model: ModelSpec) -> ModelSpec:
    adapters = tuple(replace(adapter, source=_absolute(adapter.source)) for adapter in model.adapters)
    return replace(model, source=_absolute(model.source), adapters=adapters)


def _absolute(source: str) -> str:
    return source if is_fetched(source) else str(Path(source).expanduser().absolute())


def _with_absolute_python(node: Template) -> Template:
    """Not resolved: an environment is known by the link in it that its interpreter was started by."""
    if node.engine != "vllm":
        return node
    options = node.vllm_options
    python = options.python.expanduser().absolute()
    return node.model_copy(update={"vllm": options.model_copy(update={"python": python})})


def _dump(values: dict[str, Any], show_secret: Callable[[SecretStr], str]) -> str:
    text = yaml.safe_dump(_plain(values, show_secret), sort_keys=False, allow_unicode=True)
    assert isinstance(text, str)
    return text


def _plain(value: Any, show_secret: Callable[[SecretStr], str]) -> Any:
    """``value`` in the types that YAML knows."""
    if isinstance(value, dict):
        return {key: _plain(item, show_secret) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, show_secret) for item in value]
    if isinstance(value, SecretStr):
        return show_secret(value)
    return str(value) if isinstance(value, Path) else value
