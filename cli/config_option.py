"""The ``-f FILE`` option that most commands share."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "-f",
    "--file",
    "config_file",
    type=click.Path(path_type=Path),
    envvar="TREADLE_CONFIG",
    help="Configuration of the cluster; without one the built-in defaults are used.",
)
