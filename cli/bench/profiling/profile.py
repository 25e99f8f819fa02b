"""`treadle profile`: what steps of a model cost on a node, measured there, for predicted waiting times."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.bench.process import lines_of
from cli.bench.profiling.device_predictor import device_words, keep_device_predictor
from cli.bench.profiling.kernels import profile_kernels
from cli.cluster.run_dir import RunDir, write_atomically
from cli.config.option import config_option
from cli.config.vllm_check import vllm_problems
from cli.errors import CliError
from cli.models.argument import find_model
from cli.tables import print_table
from gpu_node.bench.report import CostSamples, PredictorTables, ProfilePoint, ProfileResult, ProfileStart, Said, encode
from gpu_node.bench.report import PointProgress as Doing
from shared.config.config import ClusterConfig, load_config
from shared.config.engines.engine import ModelSpec
from shared.config.measured.predictors import Predictor, ShapeTables, encode_predictor, predictor_file
from shared.config.measured.profiles import (
    Profile,
    ProfileError,
    add_profile,
    encode_profiles,
    profiles_file,
    read_profiles,
)
from shared.config.nodes.nodes import NodeSpec


@click.command("profile")
@config_option
@click.option(
    "--model", "names", multiple=True, help="A configured model; of several, all tell of others.  [default: the first]"
)
@click.option("--node", help="The node whose executor, threads and memory are used.  [default: the first]")
@click.option("--kernels", is_flag=True, help="Instead: the best time of each operator of a layer, by rows.")
@click.option("--interference", is_flag=True, help="Instead: what operators keep of their speed beside one another.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: kinds of steps, then the result.")
def command(
    config_file: Path | None, names: tuple[str, ...], node: str | None, kernels: bool, interference: bool, as_json: bool
) -> None:
    """Measure what a step costs: so much each, so much for each row and for the context that rows read and attend to.

    Runs real steps over a grid of batches and contexts in a process of its own, and judges what was fitted to one part
    of the grid by the other part. Also measures loads from file and from host memory, and moves of keys and values.
    The result is kept in the data folder: engines of such nodes start from it instead of learning all anew. Best run
    while nothing else uses the node's CPUs.

    With --kernels, --interference or both, measures what `treadle pipeline search --profile` needs of a device; what
    was measured before of the same model on such a node stays beside it.
    """
    config = load_config(config_file)
    node_spec = _named_node(config, node)
    if problems := vllm_problems(config.model_copy(update={"nodes": [node_spec], "pools": []})):
        raise CliError("\n".join(problems))
    specs = [_named_model(config, name) for name in dict.fromkeys(names)] or [_named_model(config, None)]
    if kernels or interference:
        if len(specs) > 1:
            raise CliError("--kernels and --interference measure one --model at a time")
        profile_kernels(
            config.model_copy(update={"models": specs, "nodes": [node_spec]}), kernels, interference, as_json
        )
        return
    if len({spec.weights for spec in specs}) > 1:
        raise CliError("models with weights of several types do not tell of one another; profile those of each apart")
    measured: dict[str, CostSamples] = {}
    device = ""
    for spec in specs:
        said = _profile_model(config, spec, node_spec, as_json=as_json)
        device = said.result.device
        if said.samples is not None:
            measured[spec.name] = said.samples
    if len(measured) > 1:
        file, predictor = keep_device_predictor(config, node_spec, device, specs[0].weights, measured)
        if not as_json:
            click.echo(device_words(predictor))
            click.echo(f"kept in {file}")


def _profile_model(config: ClusterConfig, spec: ModelSpec, node: NodeSpec, *, as_json: bool) -> ProfileSaid:
    """Measure one model, keep what comes of it, and say it."""
    path = profiles_file(config)
    try:
        profiles = read_profiles(path)  # says what is wrong with the file before anything is measured
        said = measure(config.model_copy(update={"models": [spec], "nodes": [node]}))
    except ProfileError as error:
        raise CliError(str(error)) from error
    tables, result = said.tables, said.result
    RunDir(config).create()
    write_atomically(path, encode_profiles(add_profile(profiles, _profile(spec, node, result))))
    if tables is not None:
        file = predictor_file(config, result.device, spec.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, encode_predictor(_predictor(config, spec, node, result.device, tables)))
    if as_json:
        for line in (*said.points, *([PredictorTables(tables)] if tables is not None else []), result):
            click.echo(encode(line))
    else:
        print_table(_table(said.points))
        click.echo(_words(result))
        if tables is not None:
            click.echo(_predictor_words(tables))
        click.echo(f"kept in {path}")
    return said


def _named_model(config: ClusterConfig, name: str | None) -> ModelSpec:
    names = [spec.name for spec in config.models]
    if name is not None and name not in names:
        raise CliError(f"{name!r} is no configured model ({', '.join(names)})")
    return find_model(name or names[0], config)


def _named_node(config: ClusterConfig, name: str | None) -> NodeSpec:
    names = [node.name for node in config.nodes]
    if name is not None and name not in names:
        raise CliError(f"{name!r} is no configured node ({', '.join(names)})")
    return config.node(name or names[0])


@dataclass(frozen=True, slots=True)
class ProfileSaid:
    """What the process that measures a model has said."""

    points: list[ProfilePoint]
    samples: CostSamples | None
    tables: ShapeTables | None
    result: ProfileResult


def measure(config: ClusterConfig) -> ProfileSaid:
    """Of the only node and the only model. With a progress bar on stderr where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    points: list[ProfilePoint] = []
    samples: CostSamples | None = None
    tables: ShapeTables | None = None
    result: ProfileResult | None = None
    task = progress.add_task("starting", total=None)
    with progress, closing(_lines(config)) as lines:
        for line in lines:
            match line:
                case Doing():
                    progress.update(task, description=line.doing, advance=line.num_rows)
                case ProfileStart():
                    progress.update(task, total=line.num_rows)
                case ProfilePoint():
                    points.append(line)
                case CostSamples():
                    samples = line
                case PredictorTables():
                    tables = line.tables
                case ProfileResult():
                    result = line
                case _:
                    raise AssertionError(f"no part of a profile: {line}")
    assert result is not None, "the process ended well, so it has said its result"
    return ProfileSaid(points, samples, tables, result)


def _lines(config: ClusterConfig) -> Generator[Said]:
    """Of the process that measures the only node there is, as its engine wants it."""
    (node,) = config.nodes
    if node.engine == "vllm":
        python = str(node.vllm_options.python.expanduser().absolute())
        return lines_of(config, (), module="gpu_node.vllm.serving.profiling", python=python)
    return lines_of(config, (), module="gpu_node.bench.profiling")


def _predictor(config: ClusterConfig, spec: ModelSpec, node: NodeSpec, device: str, tables: ShapeTables) -> Predictor:
    return Predictor(
        model=spec.name,
        source=spec.source,
        weights=spec.weights,
        device=device,
        executor=node.executor,
        num_threads=node.num_threads,
        tensor_parallel=node.tensor_parallel,
        block_size=config.engine.block_size,
        tables=tables,
    )


def _predictor_words(tables: ShapeTables) -> str:
    """How good each predictor is, beside how far repetitions differ."""
    named = (
        ("a prompt alone", tables.prompt),
        ("a chunk", tables.chunk),
        ("blocks out", tables.move_out),
        ("blocks in", tables.move_in),
        ("blocks to the SSD", tables.store_out),
        ("blocks from the SSD", tables.store_in),
    )
    return "\n".join(
        f"{name}: {one.regressor}, degree {one.degree}; error {one.held_out_error:.1%} held out, "
        f"repetitions differ by {one.repeatability:.1%}"
        for name, one in named
        if one is not None
    )


def _profile(spec: ModelSpec, node: NodeSpec, result: ProfileResult) -> Profile:
    return Profile(
        model=spec.name,
        source=spec.source,
        weights=spec.weights,
        device=result.device,
        executor=node.kind,
        num_threads=node.num_threads,
        tensor_parallel=node.tensor_parallel,
        cost=result.cost,
        held_out_error=result.held_out_error,
        disk_load_s=result.disk_load_s,
        host_load_s=result.host_load_s,
        kv_bytes_per_s=result.kv_bytes_per_s,
    )


def _table(points: list[ProfilePoint]) -> Table:
    """A row a kind of step."""
    table = Table("step", box=None, pad_edge=False)
    for heading in ("batch", "context", "steps", "measured ms", "predicted ms", "error", "held out"):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(
            point.kind_of_step,
            str(point.num_sequences),
            str(point.context_tokens),
            str(point.num_steps),
            f"{point.measured_s * 1e3:.2f}",
            f"{point.predicted_s * 1e3:.2f}",
            f"{point.predicted_s / point.measured_s - 1:+.0%}",
            "yes" if point.is_held_out else "",
        )
    return table


def _words(result: ProfileResult) -> str:
    """The result for people."""
    cost = result.cost
    host = (
        f"{result.host_load_s:.2f} s from host memory" if result.host_load_s else "weights do not stay in host memory"
    )
    moves = f"{result.kv_bytes_per_s / 1e9:.1f} GB/s" if result.kv_bytes_per_s else "not here"
    return (
        f"a step: {cost.step_s * 1e3:.3g} ms, a row: {cost.token_s * 1e6:.3g} µs, a token read: "
        f"{cost.context_token_s * 1e6:.3g} µs, a token attended to: {cost.attended_token_s * 1e6:.3g} µs\n"
        f"median error {result.fit_error:.1%}, of steps that it was not fitted to {result.held_out_error:.1%}; "
        f"load of the machine {result.load:.2f}\n"
        f"load: {result.disk_load_s:.2f} s from file, {host}; keys and values move at {moves}"
    )
