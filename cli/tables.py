"""Tables on stdout."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 400  # for a reader that is no terminal: no line is folded or cut


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or with every value whole when it goes into a file or a pipe."""
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(table)
