"""Files of all models and adapters of a configuration: what is missing or damaged is told at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import is_fetched
from shared.config.reading.problems import listed
from shared.files.model_file import ModelFileError, checked_path


def checked_paths(models: Iterable[ModelSpec]) -> dict[str, Path]:
    """By name, the files or directories of models and of their adapters, as `checked_path` has each.

    One `ModelFileError` tells all that is wrong.
    """
    specs: list[ModelSpec | AdapterSpec] = []
    for model in models:
        specs += [model, *model.adapters]
    return _checked(specs)


def checked_adapters(models: Iterable[ModelSpec]) -> dict[str, Path]:
    """The same of the adapters alone that are not fetched."""
    adapters = (adapter for model in models for adapter in model.adapters)
    return _checked(adapter for adapter in adapters if not is_fetched(adapter.source))


def _checked(specs: Iterable[ModelSpec | AdapterSpec]) -> dict[str, Path]:
    found, problems = {}, []
    for spec in specs:
        try:
            found[spec.name] = checked_path(spec)
        except ModelFileError as error:
            problems.append(str(error))
    if problems:
        raise ModelFileError(problems[0] if len(problems) == 1 else listed(problems))
    return found
