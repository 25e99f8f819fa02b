"""Fetch a commit of a repository on the Hugging Face hub: the files that a model is made of, each checked.

What has come stays beside the model's place until all is there, so a download that broke off goes on where it was.
Nothing that could run is fetched: weights are safetensors or GGUF.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from cli.errors import CliError
from cli.models.source import HubModel
from cli.models.wanted_files import model_files
from shared.config.engines.model_source import is_plain_path

ASK_TIMEOUT_S = 30.0
"""Of the hub, for what a commit holds; its package bounds the wait for files."""
MAX_FILES = 1024
"""Of a repository; the largest models have some two hundred."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a commit, as the hub describes it."""

    path: str
    num_bytes: int
    sha256: str
    """Of a large file; ``""`` for one that lies in git itself."""
    blob: str
    """Git's name of its content, or of what stands for it."""

    def is_content(self, path: Path) -> bool:
        """Whether the file at ``path`` is what was committed."""
        if path.stat().st_size != self.num_bytes:
            return False
        digest = hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % self.num_bytes, usedforsecurity=False)
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
        return digest.hexdigest() == (self.sha256 or self.blob)


def latest_commit(repository: str, revision: str) -> str:
    """The commit that a branch or tag stands at. Raises `CliError`."""
    with _telling(repository):
        from huggingface_hub import HfApi

        commit: str | None = HfApi(_endpoint()).model_info(repository, revision=revision, timeout=ASK_TIMEOUT_S).sha
    if commit is None:
        raise CliError(f"the hub tells no commit of {repository} at {revision}")
    return commit


def download_from_hub(model: HubModel, folder: Path, progress: Progress) -> Path:
    """Bring ``model`` into ``folder``, which may hold a part of it; where it lies there: a directory, or a file.

    Raises `CliError`, for files that are not what was committed too; a full disk is an `OSError` with ENOSPC.
    """
    # read when the package is imported; its other way of downloading takes more memory, and does not go on
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    with _telling(model.repository):
        files = wanted_files(model, _files(model))
        task = progress.add_task(f"download {model.repository}", total=sum(file.num_bytes for file in files))
        for file in files:
            _download(model, file, folder, progress, task)
    return folder / model.member if model.member else folder


def wanted_files(model: HubModel, files: Sequence[HubFile]) -> list[HubFile]:
    """Those of a commit that are fetched. `CliError` where the model, or its weights, are not among them."""
    if model.member:
        found = [file for file in files if file.path == model.member]
        if not found:
            known = ", ".join(sorted(file.path for file in files if file.path.endswith(".gguf"))) or "none"
            raise CliError(f"{model.repository} holds no file {model.member} at this commit; GGUF files there: {known}")
        return found
    wanted = set(model_files([file.path for file in files]))
    if not wanted:
        raise CliError(
            f"{model.repository} holds no safetensors files at this commit; name one of its GGUF files, or another "
            "repository (weights as pickles are never fetched)"
        )
    return [file for file in files if file.path in wanted]


def _endpoint() -> str | None:
    """A mirror of the hub, by the name that its package knows; None for the hub itself."""
    return os.environ.get("HF_ENDPOINT")


def _files(model: HubModel) -> list[HubFile]:
    from huggingface_hub import HfApi

    info = HfApi(_endpoint()).model_info(
        model.repository, revision=model.commit, files_metadata=True, timeout=ASK_TIMEOUT_S
    )
    siblings = info.siblings or []
    if info.sha != model.commit or len(siblings) > MAX_FILES:
        raise CliError(f"{model.repository}: the hub tells {len(siblings)} files of commit {info.sha}")
    files = [_told(one.rfilename, one.size, one.lfs, one.blob_id) for one in siblings]
    if wrong := [file.path for file in files if not is_plain_path(file.path)]:
        raise CliError(f"{model.repository}: {wrong[0]!r} is no plain path")
    return files


def _told(path: str, size: int | None, large: Any, blob: str | None) -> HubFile:
    if size is None or blob is None:
        raise CliError(f"the hub tells no size or digest of {path}")
    return HubFile(path, size, large.sha256 if large else "", blob)


def _download(model: HubModel, file: HubFile, folder: Path, progress: Progress, task: TaskID) -> None:
    """One file; one that is there already, and right, is left alone."""
    place = folder / file.path
    before = progress.tasks[progress.task_ids.index(task)].completed
    if not (place.is_file() and file.is_content(place)):
        from huggingface_hub import hf_hub_download

        hf_hub_download(
            model.repository,
            file.path,
            revision=model.commit,
            local_dir=folder,
            endpoint=_endpoint(),
            tqdm_class=_bar(progress, task),
        )
        if not file.is_content(place):
            place.unlink()
            raise CliError(f"{model.repository}: {file.path} came damaged: it is not what was committed; pull again")
    progress.update(task, completed=before + file.num_bytes)


def _bar(progress: Progress, task: TaskID) -> Any:
    """What the hub's package tells how much has come, in its own kind of progress bar."""
    from tqdm.auto import tqdm

    def begin(bar: Any, *_: Any, **__: Any) -> None:
        tqdm.__init__(bar, disable=True)

    def update(_: Any, num_bytes: float | None = 1) -> None:
        progress.advance(task, num_bytes or 0)

    return type("Bar", (tqdm,), {"__init__": begin, "update": update})


@contextmanager
def _telling(repository: str) -> Iterator[None]:
    """What the hub refuses, and what is in the way to it, as `CliError` with what to do."""
    import httpx2  # what the hub's package asks with
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise CliError(
            f"{repository} is gated: ask for access on its page, and set HF_TOKEN to a token of yours"
        ) from error
    except RepositoryNotFoundError as error:
        raise CliError(f"the hub has no repository {repository}, or it is private: set HF_TOKEN to see it") from error
    except RevisionNotFoundError as error:
        raise CliError(
            f"{repository} has no such commit, branch or tag; `treadle models pin hf:{repository}` tells the latest"
        ) from error
    except LocalEntryNotFoundError as error:
        raise CliError(f"the hub cannot be reached for {repository}: {error.__cause__ or error}") from error
    except HfHubHTTPError as error:
        raise CliError(f"the hub refuses {repository}: {error}") from error
    except httpx2.HTTPError as error:
        raise CliError(f"the hub broke off with {repository}: {error}; pull again, and it goes on") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CliError(f"{repository} was not fetched: {error}") from error
