"""From a file to the values that stand in it: what cannot be read or is no YAML is one line for the operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from shared.config.reading.problems import describe_syntax, listed
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
        loader = _Loader(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {describe_syntax(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: not valid YAML: it is nested too deeply") from error
    except _UNREADABLE as error:  # of a mapping or list under a tag of something else; what it says may be a secret
        raise ConfigError(f"{source}: not valid YAML: a tag does not fit its value") from error
    if loader.doubles:
        raise ConfigError(f"{source}: {listed(loader.doubles)}")
    return value


_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the library raises for values that it takes for numbers, dates and such, and that are none."""


class _Loader(yaml.SafeLoader):
    """Notes keys that a mapping has twice: YAML allows none, and its library would take the last in silence.

    What the library raises of itself for a value that looks like a date, say, and is none becomes its error.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.doubles: list[str] = []

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _UNREADABLE as error:
            text = "this value cannot be read; a text that looks like a number or a date is quoted"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    mark = key.start_mark
                    self.doubles.append(f"{key.value}: there twice, in line {mark.line + 1}, column {mark.column + 1}")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {  # only these are booleans, as YAML has it since 1.2: `off` is a word
    first: [one for one in known if one[0] != _BOOLEAN] for first, known in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOLEAN, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def yaml_mapping(text: str, source: str) -> dict[str, Any]:
    """The same where the text is a mapping; empty text is an empty one."""
    value = yaml_value(text, source)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: expected a mapping at the top, found {type(value).__name__}")
    return value
