"""Executors that check no guessed tokens: a model that asks for it is refused there."""

from __future__ import annotations

from pathlib import Path

from shared.config.engines.engine import ModelSpec
from shared.files.model_file import ModelFileError


def refuse_speculation(spec: ModelSpec, path: Path) -> None:
    """Raises `ModelFileError` for a model of the file ``path`` whose tokens are to be guessed."""
    if spec.speculation is not None:
        raise ModelFileError(
            f"{path}: guessed tokens (speculation) are checked by executor: cpu and reference alone; leave it out"
        )
