"""`treadle sim`: a cluster of devices that are not there, in virtual time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import ValidationError
from rich.table import Table

from cli.errors import CliError
from cli.finite_range import FiniteRange
from cli.progress_bar import progress_bar
from cli.simulate.checked_run import checked_run
from cli.simulate.workload_option import ALLOW_LEFT_OUT, DEVICE_COUNTS, SLO_MIX, workload_choice
from cli.tables import print_table
from services.simulator.cluster import cluster
from services.simulator.devices.catalogue import (
    MAX_NUM_SEQS,
    STEP_TOKENS,
    cluster_config,
    devices_of,
    phases_of,
    with_pipeline,
)
from services.simulator.devices.device import NETWORK_BYTES_PER_S, SimulatedDevice
from services.simulator.devices.device_group import group_name
from services.simulator.reports.chrome_trace import chrome_trace
from services.simulator.reports.report import DECIMALS, report
from services.simulator.simulation import PLAN_VISITS, Scenario
from shared.config.engines.tiers import TierOptions
from shared.config.measured.profiles import Profile, ProfileError, read_profiles
from shared.config.pipelines.pipeline_file import SEARCH_AGAIN, PipelineError, PipelineFile, read_pipeline
from shared.config.services.corrections import PredictionOptions
from shared.config.services.policies import PolicyName
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.messages.nodes.nodes import PhaseOption

_FILE = click.Path(path_type=Path, dir_okay=False)
_NOT_THERE = dict.fromkeys(("estimator_r2", "estimator_mean_error_s"), "too few waits to judge")
_ENGINES = {"fast": cluster.fast, "stepped": cluster.stepped}
MAX_HOST_BYTES = 1 << 43
"""8 TiB, more than a machine has: an entry for each of its blocks takes a gigabyte and some seconds to make."""
_HOST_BYTES = click.IntRange(0, MAX_HOST_BYTES)


@click.group("sim")
def command() -> None:
    """Simulate a cluster: the live services over devices by their published numbers."""


@command.command("run")
@click.option("--workload", required=True, help="wa, wb or wc (QLM's evaluation), or a CSV file of requests.")
@click.option("--policy", type=click.Choice(get_args(PolicyName)), default="qlm", show_default=True, help="Order.")
@click.option(
    "--devices",
    type=DEVICE_COUNTS,
    default="a100=1",
    show_default=True,
    help="Such as a100=50,a10=30,a100x8=2.",
)
@click.option("--auto", type=DEVICE_COUNTS, default={}, help="Of these, those whose phases follow the load: a100=4.")
@click.option("--prefill", type=DEVICE_COUNTS, default={}, help="Of these, those that only prefill: a100=10.")
@click.option("--decode", type=DEVICE_COUNTS, default={}, help="Likewise, those that only decode.")
@click.option("--profiles", type=_FILE, help="Of `treadle profile`: measured costs in the place of published numbers.")
@click.option("--pipeline", type=_FILE, help="Of `treadle pipeline search`: devices run it where it is shorter.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Arrivals a second.  [default: the file's]")
@click.option("--requests", "num_requests", type=click.IntRange(min=1), default=3500, show_default=True)
@click.option("--slo", type=SLO_MIX, help="Mix of classes, such as interactive=1,batch-1=2.  [default: workload's]")
@click.option("--models", help="Served for those of a file, the most popular first: A,B.  [default: QLM's three]")
@ALLOW_LEFT_OUT
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For all that is drawn.")
@click.option(
    "--delta", type=FiniteRange(min=0, max=64, min_open=True), default=QueueOptions().delta, show_default=True
)
@click.option("--max-num-seqs", type=click.IntRange(1, 4096), default=MAX_NUM_SEQS, show_default=True, help="Batch.")
@click.option("--evict/--no-evict", default=None, help="Running requests give way.  [these: what the policy can use]")
@click.option("--balance/--no-balance", default=None, help="Waiting groups change nodes.")
@click.option("--migrate/--no-migrate", default=None, help="Running groups change nodes.")
@click.option("--swap/--no-swap", default=None, help="Nodes change models.")
@click.option("--pace/--no-pace", default=None, help="Who has time leaves a batch the pace that it has to have.")
@click.option("--immediate/--no-immediate", default=None, help="Who comes begins at once where that costs least.")
@click.option("--overtake/--no-overtake", default=None, help="Who comes goes before those due later.")
@click.option("--rescue/--no-rescue", default=None, help="Who is far too late goes first.")
@click.option("--warm/--no-warm", default=None, help="Who comes is weighed by what nodes have of the prompt.")
@click.option("--fetch/--no-fetch", default=None, help="Nodes read one another's caches.")
@click.option("--read-ahead/--no-read-ahead", default=None, help="KV of a prompt is sent while it is computed.")
@click.option(
    "--network-bytes-per-s",
    type=FiniteRange(min=0, min_open=True),
    default=NETWORK_BYTES_PER_S,
    show_default=True,
    help="KV that comes to a device from others.",
)
@click.option("--host-bytes", type=_HOST_BYTES, default=0, show_default=True, help="Of a node, for KV.")
@click.option("--ssd-bytes", type=click.IntRange(min=0), default=0, show_default=True, help="Likewise, below it.")
@click.option("--without", default="", help="Corrections of predicted waits to leave out: A,B.  [default: none]")
@click.option("--plan-visits", type=click.IntRange(min=1), default=PLAN_VISITS, show_default=True, help="Of a search.")
@click.option("--engine", type=click.Choice(list(_ENGINES)), default="fast", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@click.option("--trace", "trace_file", type=_FILE, help="Also write a trace for Chrome's or Perfetto's viewer.")
@click.option("--plot", type=_FILE, help="Also draw a picture (PNG, SVG or PDF by its name).")
def run(
    workload: str,
    policy: str,
    devices: dict[str, float],
    profiles: Path | None,
    pipeline: Path | None,
    num_requests: int,
    seed: int,
    max_num_seqs: int,
    plan_visits: int,
    engine: str,
    as_json: bool,
    trace_file: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Run a workload to its end and report what became of it.

    The same options give the same report, but for `sim_wall_s`, the time that the simulation took.
    """
    wanted = {name: options[name] for name in ("rate", "slo", "models", "allow_left_out")}
    choice = workload_choice("--workload", workload, **wanted)
    queue = _queue(policy, options)
    counts = {kind: int(count) for kind, count in devices.items()}
    measured = _profiles(profiles) if profiles else ()
    network = options["network_bytes_per_s"]
    known = devices_of(counts, choice.models, measured, choice.max_model_lens)
    nodes = {name: replace(one, network_bytes_per_s=network) for name, one in known.items()}
    step_tokens = STEP_TOKENS
    if pipeline is not None:
        file = _pipeline(pipeline, counts, choice.models, max_num_seqs)
        nodes, step_tokens = _piped(nodes, file), file.rows
    scenario = Scenario(
        config=cluster_config(
            list(nodes),
            choice.models,
            queue,
            max_num_seqs,
            choice.max_model_lens,
            _tiers(options["host_bytes"], options["ssd_bytes"]),
            step_tokens,
            _phases(counts, options["prefill"], options["decode"], options["auto"]),
        ),
        devices=nodes,
        requests=choice.draw(num_requests, seed),
        make_engine=_ENGINES[engine],
        plan_visits=plan_visits,
    )
    began_s = time.perf_counter()
    with progress_bar("requests over", len(scenario.requests)) as show:
        done = checked_run(scenario, show)
    found = {
        "workload": choice.name,
        "policy": policy,
        "devices": counts,
        "rate_rps": options["rate"],
        "seed": seed,
        "num_left_out": choice.num_left_out,
        "left_out_share": round(choice.left_out_share, DECIMALS),
        **report(done),
        "sim_wall_s": round(time.perf_counter() - began_s, 3),
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    if trace_file is not None:
        with _writing(trace_file, "written"):
            trace_file.write_text(json.dumps(chrome_trace(done)), encoding="utf-8")
    if plot is not None:
        from services.simulator.reports.plot import draw  # matplotlib takes a second to import

        with _writing(plot, "drawn"):
            draw(done, plot)


def _queue(policy: str, options: dict[str, Any]) -> QueueOptions:
    operations = {name: options[name] for name in OperationOptions.model_fields}
    predictions = _predictions(options["without"])
    values = {"policy": policy, "delta": options["delta"], "operations": operations, "predictions": predictions}
    try:
        return QueueOptions.model_validate(values)
    except ValidationError as error:
        raise CliError("\n".join(str(one["ctx"]["error"]) for one in error.errors())) from error


def _phases(
    counts: Mapping[str, int], prefill: Mapping[str, float], decode: Mapping[str, float], auto: Mapping[str, float]
) -> dict[str, PhaseOption]:
    """Of the devices by the names of their nodes; raises `CliError` where there are too few, or a phase has none."""
    for kind in {**prefill, **decode, **auto}:
        num_wanted = int(prefill.get(kind, 0) + decode.get(kind, 0) + auto.get(kind, 0))
        if num_wanted > counts.get(kind, 0):
            raise CliError(
                f"--prefill, --decode, --auto: {num_wanted} of {kind}, of which there are {counts.get(kind, 0)}"
            )
    num_prefill, num_decode, num_auto = (int(sum(one.values())) for one in (prefill, decode, auto))
    if (num_prefill == sum(counts.values())) or (num_decode and not num_prefill + num_auto):
        lacking = "decodes" if num_prefill else "hands its requests over to those that decode (--prefill)"
        raise CliError(f"--prefill, --decode, --auto: no device {lacking}")
    if num_auto == 1 and not num_prefill + num_decode:
        raise CliError("--auto: one device alone has nobody to part the phases with")
    return phases_of(*({kind: int(count) for kind, count in one.items()} for one in (prefill, decode, auto)))


def _tiers(host_bytes: int, ssd_bytes: int) -> TierOptions:
    try:
        return TierOptions(host_bytes, ssd_bytes, "simulated" if ssd_bytes else None)
    except ValueError as error:
        raise CliError(f"--host-bytes, --ssd-bytes: {error}") from error


def _predictions(without: str) -> PredictionOptions:
    try:
        return PredictionOptions.model_validate({"without": without.split(",") if without else []})
    except ValidationError as error:
        raise CliError(f"--without: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _profiles(path: Path) -> list[Profile]:
    if not path.exists():
        raise CliError(f"{path}: there is no such file; `treadle profile` writes one into the data folder")
    try:
        return read_profiles(path)
    except ProfileError as error:
        raise CliError(str(error)) from error


def _pipeline(path: Path, counts: Mapping[str, int], models: Sequence[str], max_num_seqs: int) -> PipelineFile:
    try:
        file = read_pipeline(path)
    except PipelineError as error:
        raise CliError(f"--pipeline: {error}") from error
    for name, found, known in (
        ("device", group_name(file.device, file.num_devices), list(counts)),
        ("model", file.model, models),
    ):
        if found not in known:
            raise CliError(f"--pipeline: it is for {name} {found!r}, not for {', '.join(known)}; {SEARCH_AGAIN}")
    if file.rows <= max_num_seqs:
        raise CliError(
            f"--pipeline: {max_num_seqs} sequences (--max-num-seqs) fill its {file.rows} rows with decodes alone, for "
            f"which it was not searched; {SEARCH_AGAIN} and more --rows"
        )
    return file


def _piped(nodes: Mapping[str, SimulatedDevice], file: PipelineFile) -> dict[str, SimulatedDevice]:
    try:
        return {name: with_pipeline(device, file) for name, device in nodes.items()}
    except PipelineError as error:
        raise CliError(f"--pipeline: {error}") from error


@contextmanager
def _writing(path: Path, what: str) -> Iterator[None]:
    """Says that a file was written; `CliError` where it cannot be. The report is out by then."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be written: {error}") from error
    click.echo(f"{what}: {path}", err=True)


def _print(found: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in found.items():
        if isinstance(value, dict):
            for key, one in value.items():
                table.add_row(f"{name} {key}", str(one))
        else:
            table.add_row(name, _NOT_THERE.get(name, "–") if value is None else str(value))
    print_table(table)
