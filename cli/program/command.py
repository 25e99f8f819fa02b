"""`treadle program MODEL`: the operators of one step of a model, with what each reads, writes and costs."""

from __future__ import annotations

from math import inf
from pathlib import Path

import click

from cli.config.option import config_option
from cli.errors import CliError
from cli.finite_range import FiniteRange
from cli.models.argument import find_model
from cli.program.report import report
from cli.program.svg import program_svg
from cli.program.table import bound_lines, model_line, passes_line, program_table, step_line
from cli.tables import print_table
from gpu_node.graph.cost import DeviceRates, NumberBytes, program_costs, total
from gpu_node.graph.passes.named import UnknownPassError, parse_passes
from gpu_node.graph.passes.tensor_parallel import IndivisibleError
from gpu_node.graph.program import Program
from gpu_node.graph.step_shape import StepShape, even_step
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import load_config
from shared.files.model_file import ModelFileError, model_path

_COUNT = click.IntRange(min=0)
_RATE = FiniteRange(min=0, min_open=True)


@click.command("program")
@click.argument("model")
@config_option
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True, help="Tokens computed in the step.")
@click.option("--draws", type=_COUNT, help="Tokens drawn, one a sequence.  [default: one a row, a step of decodes]")
@click.option("--context", type=_COUNT, default=512, show_default=True, help="Tokens of each sequence after the step.")
@click.option("--number-bytes", type=_RATE, default=2.0, show_default=True, help="Bytes of a number: 2 for bfloat16.")
@click.option(
    "--passes",
    default="",
    help="Change the program first, by these in the order in which you give them: tp=N, early-draws, fuse, offload, "
    "offload-ahead, split=N, polls. The cpu executor runs every model after early-draws,fuse.",
)
@click.option("--gb-per-s", type=_RATE, help="Memory bandwidth of a device; with --tflops, prints the time bound.")
@click.option("--tflops", type=_RATE, help="Compute rate of a device, in 10¹² operations a second.")
@click.option("--wire-gb-per-s", type=_RATE, help="What a device sends to others, for programs with tp=N.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Also draw the program into this file.")
def command(
    model: str,
    config_file: Path | None,
    rows: int,
    draws: int | None,
    context: int,
    number_bytes: float,
    passes: str,
    gb_per_s: float | None,
    tflops: float | None,
    wire_gb_per_s: float | None,
    svg: Path | None,
) -> None:
    """Show what one step of MODEL computes: a configured name, a GGUF file or a Hugging Face directory."""
    if (gb_per_s is None) != (tflops is None):
        raise CliError("--gb-per-s and --tflops say together how quick a device is; give both or none")
    step = _step(rows, rows if draws is None else draws, context)
    try:
        config = open_checkpoint(model_path(find_model(model, load_config(config_file)))).config
    except ModelFileError as error:
        raise CliError(str(error)) from error
    if context > config.context_length:
        raise CliError(f"{model} has a context of {config.context_length} tokens; --context is {context}")
    sizes = NumberBytes(number_bytes, number_bytes, number_bytes)
    plain = build_program(config)
    found = report(_changed(plain, passes), step, sizes)
    click.echo(f"{model_line(config)}\n{step_line(step)}; {number_bytes:g} bytes a number")
    click.echo(f"{passes_line(passes, found.cost, total(program_costs(plain, step, sizes)))}\n" if passes else "")
    print_table(program_table(found))
    if gb_per_s is not None and tflops is not None:
        if found.cost.wire_bytes and wire_gb_per_s is None:
            raise CliError("the devices of this program send to one another: say also --wire-gb-per-s")
        rates = DeviceRates(gb_per_s * 1e9, tflops * 1e12, (wire_gb_per_s or inf) * 1e9)
        click.echo("\n" + "\n".join(bound_lines(found, rates, step)))
    if svg is not None:
        _write(svg, program_svg(found, Path(model).name + (f" after {passes}" if passes else ""), step_line(step)))


def _step(rows: int, draws: int, context: int) -> StepShape:
    try:
        return even_step(rows, draws, context)
    except ValueError as error:
        raise CliError(f"--rows {rows}, --draws {draws}, --context {context}: {error}") from error


def _changed(program: Program, passes: str) -> Program:
    """The program after the passes named in ``passes``."""
    try:
        for change in parse_passes(passes):
            program = change(program)
    except (UnknownPassError, IndivisibleError) as error:
        raise CliError(f"--passes {passes}: {error}") from error
    return program


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"drawn: {path}")
