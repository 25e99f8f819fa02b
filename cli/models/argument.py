"""A model that a command is asked about: a configured name goes first, anything else is a path."""

from __future__ import annotations

from pathlib import Path

from cli.errors import CliError
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path

NAME_OF_PATH = "model"
"""What a model is called that the configuration does not name."""


def find_model(model: str, config: ClusterConfig) -> ModelSpec:
    """The model, which is there; `CliError` otherwise."""
    specs = {spec.name: spec for spec in config.models}
    spec = specs.get(model) or ModelSpec(name=NAME_OF_PATH, source=str(Path(model).expanduser().absolute()))
    if model_path(spec).exists():
        return spec
    if model in specs:
        raise CliError(f"model {model!r}: {model_path(spec)} does not exist; run `treadle models pull`")
    raise CliError(f"{model!r} is no configured model ({', '.join(specs)}), and no file or directory")
