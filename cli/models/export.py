"""A GGUF file as a directory in Hugging Face layout, which vLLM reads."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from cli.errors import CliError
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import ModelFileError, checked_path


def export_model(spec: ModelSpec, folder: Path) -> None:
    """Write it whole, or not at all. Weights are computed in a process of its own: the command line has no tensors."""
    try:
        source = checked_path(spec)
    except ModelFileError as error:
        raise CliError(str(error)) from error
    if source.is_dir():
        raise CliError(f"model {spec.name!r}: {source} is a directory in that layout already")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(f"{folder} is there already; name another folder, or remove it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # beside its destination: the last step is a rename, which needs the same file system
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as scratch:
            written = Path(scratch, "model")
            _run(source, written)
            written.replace(folder)
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {error.strerror}; nothing was kept") from error


def _run(source: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "gpu_node.models.hf.export", str(source), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise CliError(f"{source} was not exported: {lines[-1] if lines else f'status {done.returncode}'}")
