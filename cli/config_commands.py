"""`treadle config check` and `treadle config show`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.config_option import config_option
from cli.config_yaml import masked_yaml
from shared.config import load_config


@click.group("config")
def command() -> None:
    """Check and show configurations."""


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Validate FILE and report all of its problems at once."""
    config = load_config(file)
    click.echo(f"{file}: OK ({len(config.models)} models, {len(config.nodes)} nodes)")


@command.command("show")
@config_option
def show(config_file: Path | None) -> None:
    """Print the effective configuration as YAML, secrets masked."""
    click.echo(masked_yaml(load_config(config_file)), nl=False)
