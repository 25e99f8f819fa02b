"""`treadle bench engine`: one engine without HTTP, at points of (requests x prompt x output tokens)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.bench.process import lines_of
from cli.bench.table import machine_line, points_table
from cli.config.option import config_option
from cli.models.argument import find_model
from cli.tables import print_table
from gpu_node.bench.point import BenchPoint, PointError, parse_points
from gpu_node.bench.report import Machine, PointResult, encode
from gpu_node.bench.report import PointProgress as Doing
from shared.config.config import ClusterConfig, load_config, parse_config
from shared.config.engines.engine import ModelSpec, WeightType

POINTS = "1x32x128,8x128x128,64x256x128,128x512x64"


def _points(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[BenchPoint, ...]:
    try:
        return parse_points(value)
    except PointError as error:
        raise click.BadParameter(str(error)) from error


def _cpus(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int]:
    parts = [] if value is None else [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} is no list of CPUs: write their numbers, such as 0,1")
    return [int(part) for part in parts]


@click.command("engine")
@config_option
@click.option("--model", help="A configured name, a GGUF file or a Hugging Face directory.  [default: the first model]")
@click.option("--points", callback=_points, default=POINTS, show_default=True, help="REQUESTSxINxOUT, in tokens.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads that compute.  [default: one a CPU]")
@click.option("--cpus", callback=_cpus, help="Pin the threads, one to each of these.  [default: left to the system]")
@click.option("--executor", type=click.Choice(["cpu", "reference"]), default="cpu", show_default=True)
@click.option(
    "--weights", type=click.Choice(["bfloat16", "int8"]), help="Type of the matrices.  [default: the model's]"
)
@click.option("--kv-gib", type=click.IntRange(1, 4096), default=4, show_default=True, help="KV cache, in 2³⁰ bytes.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Runs of each point.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: the machine, then each point.")
def engine(
    config_file: Path | None,
    model: str | None,
    points: tuple[BenchPoint, ...],
    threads: int | None,
    cpus: list[int],
    executor: str,
    weights: WeightType | None,
    kv_gib: int,
    repeat: int,
    as_json: bool,
) -> None:
    """Measure one engine in a process of its own: greedy requests of equal length, all there from the start.

    First the machine: bytes read and bfloat16 operations a second with as many threads. Then each point: output
    tokens a second, prompts and decode apart, and the share reached of the least time that these two rates allow.
    Block size and step budget are the configuration's. Of several runs the one of median length is shown.
    """
    config = load_config(config_file)
    num_threads = threads or len(cpus) or _num_cpus()
    node = {"name": "bench", "num_threads": num_threads, "cpus": cpus, "executor": executor}
    spec = find_model(model or config.models[0].name, config)
    if weights is not None:
        spec = replace(spec, weights=weights)
    measured = _measured(config, spec, node, kv_gib, points)
    arguments = ["--points", ",".join(map(str, points)), "--repeat", str(repeat)]
    results = _results(measured, arguments, repeat * sum(point.num_rows for point in points), as_json=as_json)
    if not as_json:
        print_table(points_table(results))


def _num_cpus() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _measured(
    config: ClusterConfig, spec: ModelSpec, node: dict[str, Any], kv_gib: int, points: Sequence[BenchPoint]
) -> ClusterConfig:
    """One node, one model; `ConfigError` if the options do not fit together."""
    num_requests = max(point.num_requests for point in points)
    options = asdict(config.engine) | {"kv_cache_bytes": kv_gib << 30, "max_num_seqs": num_requests}
    text = yaml.safe_dump({"models": [asdict(spec)], "nodes": [node], "engine": options})
    return parse_config(text, "treadle bench engine")


def _results(config: ClusterConfig, arguments: Sequence[str], num_rows: int, *, as_json: bool) -> list[PointResult]:
    """Every point, with a progress bar on stderr. The machine is printed as it comes, and so are points as JSON."""
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    console = Console(stderr=True)
    # stdout may be a pipe while stderr is a terminal: rich would send what is printed to the terminal
    progress = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    )
    task = progress.add_task("starting", total=num_rows)
    with progress, closing(lines_of(config, arguments)) as lines:
        for line in lines:
            if isinstance(line, Doing):
                progress.update(task, description=line.doing, advance=line.num_rows)
                continue
            if isinstance(line, PointResult):
                results.append(line)
            text = encode(line) if as_json else machine_line(line) if isinstance(line, Machine) else ""
            if text:
                progress.stop()  # or the text would stand behind the bar
                click.echo(text)
                progress.start()
    return results
