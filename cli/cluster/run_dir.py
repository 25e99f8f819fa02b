"""Where a cluster keeps what it needs between two commands: logs, Redis data, and who runs."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.errors import CliError
from shared.config.config import ClusterConfig
from shared.telemetry import log_files

_PRIVATE = 0o700  # the configuration copy holds API keys, and Redis holds prompts
_WHOSE = "is data_dir that of your cluster?"


class RunDir:
    """The files of one cluster under its ``data_dir``; two clusters have two of them."""

    def __init__(self, config: ClusterConfig) -> None:
        self.root = config.data_dir.expanduser().absolute()
        self.run = self.root / "run"
        self.logs = self.root / "logs"
        self.redis = self.root / "redis"
        self.state_file = self.run / "cluster.json"
        self.config_file = self.run / "config.yaml"

    def create(self) -> None:
        """Make the folders, readable by their owner only."""
        for folder in (self.root, self.run, self.logs, self.redis):
            try:
                folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            except OSError as error:
                raise CliError(
                    f"{folder}: cannot be created: {error.strerror}; set data_dir to another folder"
                ) from error

    def has_state(self) -> bool:
        """Whether a cluster was ever started here; `CliError` where that is not for this user to see."""
        try:
            return self.state_file.exists()
        except OSError as error:
            raise CliError(f"{self.state_file} cannot be read: {error.strerror}; {_WHOSE}") from error

    def log_file(self, name: str) -> Path:
        """Log of a process."""
        return log_files.log_file(self.root, name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while a command changes the cluster; a second such command is refused at once, as is another user's."""
        path = self.run / "lock"
        try:
            file = path.open("a")
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}; {_WHOSE}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CliError(
                    f"another `treadle up` or `treadle down` is at work in {self.root}; let it end"
                ) from error
            yield  # closing the file releases the lock, also when this process is killed


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` so that a reader, or a crash, sees the old content or the new one and nothing between."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
