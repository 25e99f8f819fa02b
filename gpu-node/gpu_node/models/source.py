"""The file or directory that a configured model names, present and with the configured digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from shared.config import ModelSpec, model_path
from shared.model_file import ModelFileError, checked_path, sha256_of


def checked_source(spec: ModelSpec) -> Path:
    """The model's GGUF file or its directory; `ModelFileError` where it is missing or has another digest."""
    path = model_path(spec)
    if not path.is_dir():
        return checked_path(spec)
    if spec.sha256 is not None:
        found = sha256_of_directory(path)
        if found != spec.sha256:
            raise ModelFileError(
                f"model {spec.name!r}: {path} is damaged or another model: the sha256 of its files is {found}, "
                f"expected {spec.sha256}"
            )
    return path


def sha256_of_directory(path: Path) -> str:
    """Hex digest of all files in a directory: what ``cd PATH && LC_ALL=C sha256sum * | sha256sum`` prints.

    Hidden files and directories in it do not count; the digest of each file, and its name, do.
    """
    digest = hashlib.sha256()
    names = (file.name for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    for name in sorted(names, key=str.encode):
        digest.update(f"{sha256_of(path / name)}  {name}\n".encode())
    return digest.hexdigest()
