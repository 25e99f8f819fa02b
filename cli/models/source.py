"""The ``source`` of a model that is fetched, taken apart."""

from __future__ import annotations

import re

from cli.errors import CliError
from shared.config.engines import model_source
from shared.config.engines.model_source import BUCKET_PREFIX as BUCKET_PREFIX
from shared.config.engines.model_source import HUB_PREFIX as HUB_PREFIX
from shared.config.engines.model_source import PREFIX as PREFIX
from shared.config.engines.model_source import BucketModel as BucketModel
from shared.config.engines.model_source import HubModel as HubModel
from shared.config.engines.model_source import ModelSourceError
from shared.config.engines.model_source import PackagedModel as PackagedModel

_BRANCH = re.compile(r"(?:hf:)?([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(?:@([^@\s]+))?")


def hub_branch(source: str) -> tuple[str, str]:
    """Repository and branch or tag of ``hf:ORG/NAME[@BRANCH]``, by default ``main``; `CliError` for what is none."""
    match = _BRANCH.fullmatch(source)
    if match is None:
        raise CliError(f"{source!r}: expected hf:ORG/NAME or hf:ORG/NAME@BRANCH")
    return match[1], match[2] or "main"


def packaged_model(source: str) -> PackagedModel:
    """As `shared.config.engines.model_source.packaged_model`; `CliError` for what could leave the wheel or steer
    pip."""
    try:
        return model_source.packaged_model(source)
    except ModelSourceError as error:
        raise CliError(f"model source {error}") from error


def hub_model(source: str) -> HubModel:
    """As `shared.config.engines.model_source.hub_model`; `CliError` for what names no commit."""
    try:
        return model_source.hub_model(source)
    except ModelSourceError as error:
        raise CliError(f"model source {error}") from error


def bucket_model(source: str) -> BucketModel:
    """As `shared.config.engines.model_source.bucket_model`; `CliError` for what names no directory and no file."""
    try:
        return model_source.bucket_model(source)
    except ModelSourceError as error:
        raise CliError(f"model source {error}") from error
