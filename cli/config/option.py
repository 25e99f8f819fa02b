"""The ``-f FILE`` option that most commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def _option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        *names,
        "config_file",
        type=click.Path(path_type=Path),
        envvar="TREADLE_CONFIG",
        help="Configuration of the cluster; without one the built-in defaults are used.",
    )


config_option = _option("-f", "--file")
long_config_option = _option("--file")
"""Where ``-f`` is to follow, as everywhere."""
