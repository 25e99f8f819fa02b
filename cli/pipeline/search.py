"""`treadle pipeline search`: the pipeline of a model on devices, as NanoFlow searches it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import click
from rich.table import Table

from cli.errors import CliError
from cli.pipeline.options import chosen_machine, chosen_model, setup_options
from cli.pipeline.svg import pipeline_svg
from cli.tables import print_table
from services.pipeline.operators.profiled import profiled_setting
from services.pipeline.operators.setting import Setting
from services.pipeline.reports.search_report import pipeline_file, search_report
from services.pipeline.search.search import FULL, QUICK, add_copies
from services.pipeline.search.search import search as find
from shared.config.hardware import ModelShape
from shared.config.measured.pipeline_profile import PipelineProfile, PipelineProfileError, read_pipeline_profile
from shared.config.pipelines.pipeline_file import PUBLISHED, PipelineFile, encode_pipeline
from shared.config.pipelines.pipelines import cpu_name
from shared.pipelines.batch import DenseBatch, MeanLengths, largest_batch
from shared.pipelines.machine import GroupPeaks

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("search")
@setup_options
@click.option("--offload", is_flag=True, help="Copy keys and values to the host as they are made.")
@click.option("--quick", is_flag=True, help="Some seconds of search instead of minutes.")
@click.option("--spread", is_flag=True, help="Decodes may come among prompts, as in no engine of ours.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@click.option("--profile", type=_FILE, help="What `treadle profile --kernels --interference` has measured of a device.")
@click.option("--output", "--out", type=_FILE, help="Write the pipeline into this file, for an engine.")
@click.option("--svg", type=_FILE, help="Draw it into this file.")
def search(
    model: str,
    device: str,
    num: int,
    rows: int,
    prompt_tokens: int,
    output_tokens: int,
    offload: bool,
    quick: bool,
    spread: bool,
    as_json: bool,
    profile: Path | None,
    output: Path | None,
    svg: Path | None,
) -> None:
    """Find in which parts, in which order and with which shares of a device a layer's operators run soonest.

    How long an operator takes is calibrated on what NanoFlow publishes of an A100, unless a profile is given: of a
    cpu device there is nothing else.
    """
    group, shape, batch = (
        chosen_machine(device, num),
        chosen_model(model),
        DenseBatch(rows, MeanLengths(prompt_tokens, output_tokens)),
    )
    if largest_batch(group, shape, batch.lengths) <= 0 or shape.load_bytes > group.memory_bytes:
        raise CliError(f"the weights of {model} do not fit {num} x {device}; give more with --num")
    if spread and output is not None:
        raise CliError("--spread: an engine's steps have their decodes behind all prompts; leave out --output")
    setting, measured = _setting(group, shape, batch, profile)
    setting = replace(setting, may_spread=spread)
    if offload and not setting.times.copy.row_s:
        raise CliError(f"--offload: nothing is known of the link from {device} to its host")
    if rows % setting.granule_rows or rows < 2 * setting.granule_rows:
        raise CliError(f"--rows {rows}: sizes are multiples of {setting.granule_rows}, and two of them at least")
    budget = QUICK if quick else FULL
    found = find(setting, budget, time.monotonic)
    if offload:
        found = add_copies(found, setting, budget, time.monotonic)
    source, name, kernels = PUBLISHED, group.device, ""
    if measured is not None:
        source, kernels = measured.title, measured.kernels
        name = cpu_name(measured.num_threads) if measured.device == "cpu" else measured.device
    pipeline = pipeline_file(found, replace(group, device=name), shape, batch, source, kernels)
    report = search_report(found, group, shape, setting)
    if output is not None:
        _write(output, encode_pipeline(pipeline))
    if svg is not None:
        _write(svg, pipeline_svg(pipeline))
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(pipeline)


def _setting(
    group: GroupPeaks, model: ModelShape, batch: DenseBatch, profile: Path | None
) -> tuple[Setting, PipelineProfile | None]:
    """Times and interference, and where they were measured, if they were."""
    if profile is None:
        if group.device == "cpu":
            raise CliError(
                "--device cpu: nothing is published of it; measure it with `treadle profile --kernels "
                "--interference`, and give the file with --profile"
            )
        return Setting.published(group, model, batch), None
    try:
        found = read_pipeline_profile(profile)
        found.require(model.name, group.device)
        if group.num_devices > 1:
            raise CliError(f"--num {group.num_devices}: a profile is of one device; give --num 1")
        return profiled_setting(found, model, batch), found
    except PipelineProfileError as error:
        raise CliError(f"--profile: {error}") from error


def _print(pipeline: PipelineFile) -> None:
    table = Table(box=None)
    for name in ("operator", "rows", "lane", "R", "from µs", "to µs"):
        table.add_column(name, justify="left" if name in ("operator", "lane") else "right")
    for one in pipeline.operators:
        times = (f"{one.start_s * 1e6:.0f}", f"{one.end_s * 1e6:.0f}")
        table.add_row(one.name, f"{one.rows[0]}-{one.rows[1]}", one.lane, f"{one.r:.1f}", *times)
    print_table(table)
    gap = f"at most {pipeline.gap:.1%} above" if pipeline.gap < 1 else "nobody knows how far above"
    click.echo(
        f"\na layer takes {pipeline.layer_s * 1e6:.0f} µs, sequentially {pipeline.sequential_s * 1e6:.0f} "
        f"µs; {gap} the least with this order"
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"written: {path}", err=True)
