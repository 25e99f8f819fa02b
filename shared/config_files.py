"""From a file to the values that stand in it: what cannot be read or is no YAML is one line for the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from shared.config_problems import describe_syntax
from shared.errors import OperatorError


class ConfigError(OperatorError, ValueError):
    """A configuration that cannot be used. The text lists every problem, one a line."""


def read_text(path: Path, max_bytes: int | None = None) -> str:
    """The text of a file; `ConfigError` names one that cannot be read, or has more than ``max_bytes``."""
    try:
        with path.open("rb") as file:
            data = file.read() if max_bytes is None else file.read(max_bytes + 1)
        if max_bytes is not None and len(data) > max_bytes:
            raise ConfigError(f"{path}: cannot be read: it has more than {max_bytes} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not UTF-8 text") from error


def yaml_value(text: str, source: str) -> Any:
    """What the YAML text says; `ConfigError` gives the place in ``source`` and never the line: it may hold a secret."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {describe_syntax(error)}") from error


def yaml_mapping(text: str, source: str) -> dict[str, Any]:
    """The same where the text is a mapping; empty text is an empty one."""
    value = yaml_value(text, source)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: expected a mapping at the top, found {type(value).__name__}")
    return value
