"""What `treadle up` shows while it waits: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

READY = "ready"


class StartDisplay:
    """Names and what each waits for. A context manager; the table is live inside of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, tuple[str, float]] = {}
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=8)

    def __enter__(self) -> StartDisplay:
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, name: str, state: str) -> None:
        """``state`` is `READY`, or what the process waits for. Only a change is worth a line."""
        if name in self._rows and self._rows[name][0] == state:
            return
        elapsed_s = time.monotonic() - self._began
        self._rows[name] = (state, elapsed_s)
        if not self._console.is_terminal:
            self._console.print(f"{elapsed_s:6.1f} s  {name}: {state}", markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        now_s = time.monotonic() - self._began
        for name, (state, since_s) in self._rows.items():
            if state == READY:
                table.add_row("[green]✓[/]", escape(name), "ready", f"[dim]{since_s:.1f} s[/]")
            else:
                table.add_row("[yellow]…[/]", escape(name), escape(state), f"[dim]{now_s:.0f} s[/]")
        return table
