"""What a section of the configuration says of its fields: the text below each, as its source has it.

pydantic could read it too, at each start of each process; only the chart's schema wants it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from itertools import pairwise

from shared import config


def field_texts(name: str) -> dict[str, str]:
    """By field, for the section of this name; those it has from another one, too."""
    found: dict[str, str] = {}
    for part in reversed(_section(name).__mro__):
        if part.__module__.startswith(f"{config.__name__}."):
            found |= _texts(part)
    return found


def _section(name: str) -> type:
    for module in pkgutil.walk_packages(config.__path__, f"{config.__name__}."):
        section = vars(importlib.import_module(module.name)).get(name)
        if isinstance(section, type):
            return section
    raise LookupError(f"no section of the configuration is called {name}")


def _texts(part: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
