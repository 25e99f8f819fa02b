"""`treadle models pull`, `treadle models list` and `treadle models export`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.config.option import config_option
from cli.models.argument import find_model
from cli.models.buckets.bucket_objects import pinned_source
from cli.models.export import export_model
from cli.models.hub_download import latest_commit
from cli.models.pull import pull_models
from cli.models.source import BUCKET_PREFIX, HUB_PREFIX, bucket_model, hub_branch
from cli.tables import print_table
from shared.config.config import load_config
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path


@click.group("models")
def command() -> None:
    """Fetch and list model files."""


@command.command("pull")
@config_option
def pull(config_file: Path | None) -> None:
    """Fetch every configured model that is not there yet, and check its digest and those of adapters."""
    if not pull_models(load_config(config_file), Console(stderr=True)):
        click.echo("all models are there")


@command.command("pin")
@click.argument("source")
def pin(source: str) -> None:
    """Print SOURCE as what it stands for now: hf:ORG/NAME or hf:ORG/NAME@BRANCH with its commit, s3://BUCKET/PREFIX/ or
    s3://BUCKET/KEY.gguf with its etag or version."""
    if source.startswith(BUCKET_PREFIX):
        click.echo(pinned_source(bucket_model(source)))
        return
    repository, branch = hub_branch(source)
    click.echo(f"{HUB_PREFIX}{repository}@{latest_commit(repository, branch)}")


@command.command("export")
@config_option
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path))
def export(config_file: Path | None, model: str, folder: Path) -> None:
    """Write MODEL, a configured name or a GGUF file, into FOLDER as vLLM reads it: bfloat16 in Hugging Face layout."""
    export_model(find_model(model, load_config(config_file)), folder)
    click.echo(f"exported {folder}")


@command.command("list")
@config_option
def list_models(config_file: Path | None) -> None:
    """Show the configured models and their files, each with its adapters below it."""
    table = Table("model", "there", "size", box=None, pad_edge=False)
    table.add_column("file", overflow="fold")
    table.add_column("source", overflow="fold")
    for spec in load_config(config_file).models:
        table.add_row(spec.name, *_cells(spec))
        for adapter in spec.adapters:
            table.add_row(f"  {adapter.name}", *_cells(adapter))
    print_table(table)


def _cells(spec: ModelSpec | AdapterSpec) -> tuple[str, str, str, str]:
    """Whether it is there, its size, where it lies, and where it comes from."""
    path = model_path(spec)
    there = path.exists()
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    size = f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB" if there else "–"
    return "yes" if there else "no", size, escape(str(path)), escape(spec.source)
