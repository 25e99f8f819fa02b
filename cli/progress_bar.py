"""A progress bar on stderr for what takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SHOW_AFTER_S = 2.0
"""No bar for what is over sooner."""


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[float], None]]:
    """The function that is given says how much is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(description, total=total)
    began_s = time.monotonic()

    def show(num_done: float) -> None:
        progress.update(task, completed=num_done)
        if not progress.live.is_started and time.monotonic() - began_s > SHOW_AFTER_S:
            progress.start()

    try:
        yield show
    finally:
        if progress.live.is_started:
            progress.stop()
