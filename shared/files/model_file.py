"""Files of models and adapters on disk: found, and checked against their digest. `gguf_file` opens GGUF files."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import fetched_name, is_fetched
from shared.errors import OperatorError

MODELS_ENV = "TREADLE_MODELS_DIR"
_READ_BYTES = 1 << 20
_QUICK_BYTES = 1 << 30  # read in a second or two; who waits for `treadle up` to say why does not wait longer


class ModelFileError(OperatorError, ValueError):
    """A file of a model or an adapter that is missing, damaged or not what the configuration says; the text names file
    and remedy."""


class AdapterFilesError(ModelFileError):
    """Of adapters alone: without them, their model can be used."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        """``problems``: by adapter's name, a line each."""
        super().__init__("\n".join(problems.values()))
        self.problems = problems


def models_dir() -> Path:
    """Where fetched model files are kept, shared by all clusters of a user."""
    named = os.environ.get(MODELS_ENV)
    return Path(named) if named else Path.home() / ".cache" / "treadle" / "models"


def model_path(spec: ModelSpec | AdapterSpec) -> Path:
    """The file or directory that a source stands for on this machine (whether or not it is there yet)."""
    if is_fetched(spec.source):
        # a digest of the source keeps apart two of them whose files have the same name
        mark = hashlib.sha256(spec.source.encode()).hexdigest()[:8]
        return models_dir() / mark / fetched_name(spec.source)
    return Path(os.path.expanduser(spec.source))  # noqa: PTH111 (which raises nothing where there is no such user)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def identity(path: Path) -> str:
    """What tells a damaged file from others, in words: its digest, or its size where that would take too long."""
    num_bytes = path.stat().st_size
    return f"its sha256 is {sha256_of(path)}" if num_bytes <= _QUICK_BYTES else f"it has {num_bytes} bytes"


def sha256_of_directory(path: Path) -> str:
    """Hex digest of all files in a directory: what ``cd PATH && LC_ALL=C sha256sum * | sha256sum`` prints.

    Hidden files and directories in it do not count; the digest of each file, and its name, do.
    """
    digest = hashlib.sha256()
    names = (file.name for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    for name in sorted(names, key=os.fsencode):  # which need be no text
        digest.update(os.fsencode(f"{sha256_of(path / name)}  {name}\n"))
    return digest.hexdigest()


def model_digest(path: Path) -> str:
    """Hex digest of a model's file or directory."""
    return sha256_of_directory(path) if path.is_dir() else sha256_of(path)


def weights_digest(spec: ModelSpec | AdapterSpec) -> str:
    """Hex digest of the file or directory that weights come from: configured, or computed from it."""
    return spec.sha256 if spec.sha256 is not None else model_digest(checked_path(spec))


def checked_path(spec: ModelSpec | AdapterSpec) -> Path:
    """Its file or directory: present, to be read by this user, with the configured digest; else `ModelFileError`."""
    path = model_path(spec)
    kind = "adapter" if isinstance(spec, AdapterSpec) else "model"
    try:
        _check(spec, path, f"{kind} {spec.name!r}: {path}")
    except OSError as error:  # of a folder above it, too
        raise ModelFileError(f"{kind} {spec.name!r}: {path} cannot be read: {error.strerror or error}") from error
    return path


def _check(spec: ModelSpec | AdapterSpec, path: Path, what: str) -> None:
    is_adapter = isinstance(spec, AdapterSpec)
    if not path.exists():
        raise ModelFileError(f"{what} does not exist; {_remedy(spec)}")
    if not path.is_file() and not path.is_dir():
        raise ModelFileError(f"{what} is neither a file nor a directory")  # to open a pipe would wait for its writer
    if is_adapter and not path.is_dir():
        raise ModelFileError(f"{what} is a file; name its directory, which holds adapter_config.json")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if spec.sha256 is not None:
        found = model_digest(path)
        if found != spec.sha256:
            raise ModelFileError(
                f"{what} is damaged or another {'adapter' if is_adapter else 'file'}: its sha256 is {found}, "
                f"expected {spec.sha256}; delete it and {_remedy(spec)}"
            )


def _remedy(spec: ModelSpec | AdapterSpec) -> str:
    is_local_adapter = isinstance(spec, AdapterSpec) and not is_fetched(spec.source)
    return "put its directory there: it is not fetched" if is_local_adapter else "run `treadle models pull`"
