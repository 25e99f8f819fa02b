"""`treadle profile --kernels` and `--interference`: what a search for a pipeline has to know of a device."""

from __future__ import annotations

from contextlib import closing

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.bench.process import lines_of
from cli.cluster.run_dir import RunDir, write_atomically
from cli.errors import CliError
from cli.tables import print_table
from gpu_node.bench.report import KernelProfile, PointProgress, encode
from services.pipeline.operators.profiled import spread, table
from shared.config.config import ClusterConfig
from shared.config.measured.pipeline_profile import (
    PipelineProfile,
    PipelineProfileError,
    encode_pipeline_profile,
    pipeline_profile_file,
    read_pipeline_profile,
)


def profile_kernels(config: ClusterConfig, kernels: bool, interference: bool, as_json: bool) -> None:
    """Measure the first model on the first node, and keep it."""
    node, spec = config.nodes[0], config.models[0]
    path = pipeline_profile_file(config, node.kind, spec.name)
    try:
        before = read_pipeline_profile(path) if path.exists() else None
    except PipelineProfileError as error:
        raise CliError(f"{error}; or delete the file") from error
    flags = [name for name, is_on in (("--kernels", kernels), ("--interference", interference)) if is_on]
    measured = _measure(config, flags)
    profile = _together(measured.profile, before)
    RunDir(config).create()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode_pipeline_profile(profile))
    if as_json:
        click.echo(encode(msgspec.structs.replace(measured, profile=profile)))
        return
    _print(profile)
    click.echo(f"load of the machine {measured.load:.2f}; kept in {path}")


def _measure(config: ClusterConfig, flags: list[str]) -> KernelProfile:
    """With what is done on stderr where that is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    result: KernelProfile | None = None
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        closing(lines_of(config, flags, module="gpu_node.bench.kernels")) as lines,
    ):
        task = progress.add_task("starting", total=None)
        for line in lines:
            match line:
                case PointProgress():
                    progress.update(task, description=line.doing)
                case KernelProfile():
                    result = line
                case _:
                    raise AssertionError(f"no part of a profile of operators: {line}")
    assert result is not None, "the process ended well, so it has said its result"
    return result


def _together(new: PipelineProfile, before: PipelineProfile | None) -> PipelineProfile:
    """With what was measured before of the same, where nothing is measured now."""
    if before is None or before.key != new.key:
        return new
    return msgspec.structs.replace(
        new,
        operators=new.operators or before.operators,
        pairs=new.pairs or before.pairs,
        copy_bytes_per_s=new.copy_bytes_per_s or before.copy_bytes_per_s,
    )


def _print(profile: PipelineProfile) -> None:
    times = Table("operator", box=None, pad_edge=False)
    for heading in ("tokens each", "rows", "µs a layer"):
        times.add_column(heading, justify="right")
    for one in sorted(profile.operators, key=lambda one: (one.name, one.context_tokens, one.rows)):
        times.add_row(one.name, str(one.context_tokens or ""), str(one.rows), f"{one.seconds * 1e6:.0f}")
    print_table(times)
    for lane in sorted({pair.lane for pair in profile.pairs}):
        points = ", ".join(f"{share:.2f} -> {kept:.2f}" for share, kept in table(profile.pairs, lane))
        click.echo(f"{lane}: R -> P {points}; shapes differ by {spread(profile.pairs, lane):.1%} of P at most")
