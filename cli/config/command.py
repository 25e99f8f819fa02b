"""`treadle config check` and `treadle config show`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.config.check import check_file
from cli.config.option import config_option
from cli.config.yaml import masked_yaml
from shared.config.config import load_config


@click.group("config")
def command() -> None:
    """Check and show configurations."""


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Report all problems of FILE at once: its own, those of the models that it names, and those of this machine."""
    config, report = check_file(file)
    click.echo(f"{file}: OK ({len(config.models)} models, {len(config.nodes)} nodes)")
    for name, num_tokens in report.lengths.items():
        click.echo(f"  {name}: requests of up to {num_tokens} tokens, prompt and answer together")
        if adapters := config.model(name).adapters:
            click.echo(f"    with adapters: {', '.join(adapter.name for adapter in adapters)}")
    for name in report.missing:
        click.echo(f"  {name}: not fetched yet; `treadle up` and `treadle models pull` do it")
    for name, source in report.unpinned.items():
        click.echo(f"  {name}: its source is not pinned; `treadle models pin {source}` tells it as it is now")


@command.command("show")
@config_option
def show(config_file: Path | None) -> None:
    """Print the effective configuration as YAML, secrets masked."""
    click.echo(masked_yaml(load_config(config_file)), nl=False)
