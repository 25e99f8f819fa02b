"""`treadle bench paging`: what paged KV memory is worth on a trace of lengths. Bookkeeping only, no model is run."""

from __future__ import annotations

import json
import time
from html import escape
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.errors import CliError
from cli.finite_range import FiniteRange
from cli.tables import print_table
from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.paging.comparison import NUM_PARTS, Comparison, compare
from gpu_node.paging.generate import generate
from gpu_node.paging.server import Memory
from gpu_node.paging.trace import PagingTrace, read_trace
from shared.files.length_trace import TraceError

SHOW_AFTER_S = 2.0
"""No progress bar for what is over sooner."""

PAPER = {
    "source": "PagedAttention, SOSP'23: figure 2, §6.2, §6.3; OPT-13B on an A100 with 40 GB, ShareGPT",
    "token_states": {"paged": 0.963, "contiguous": [0.204, 0.382]},
    "requests_at_a_time": {"of_oracle": 2.2, "of_max": 4.3},
    "saved": {"parallel sampling": [0.162, 0.305], "beam search": [0.443, 0.663]},
}
_BEAM_MODEL = (
    "true beam search over made-up probabilities: the next token takes Beta(3,1) of what likelier ones have left"
)
_KINDS = {
    "states": ("token states", "#5b8db8"),
    "reserved": ("reserved", "#a9d18e"),
    "internal": ("internal frag.", "#f4b183"),
    "rounding": ("external: rounding", "#c58bb5"),
    "stranded": ("external: stranded", "#8a5aa8"),
    "headroom": ("free", "#e7e6e6"),
}
_AT_LEAST_ONE = click.IntRange(min=1)
_RATE = FiniteRange(min=0, min_open=True)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("paging")
@click.option("--trace", "trace_file", type=_FILE, help="CSV of lengths, gzipped or not.  [default: made-up ShareGPT]")
@click.option("--slots", type=click.IntRange(min=1024), default=15_728, show_default=True, help="Tokens of KV memory.")
@click.option("--token-bytes", type=click.IntRange(min=1024), default=819_200, show_default=True, help="KV of a token.")
@click.option("--block-size", type=click.IntRange(1, 256), default=16, show_default=True, help="Tokens a block.")
@click.option("--rate", type=_RATE, help="Poisson arrivals a second.  [default: the trace's, or all at once]")
@click.option("--requests", "num_requests", type=_AT_LEAST_ONE, default=1000, show_default=True, help="At most.")
@click.option("--max-tokens", type=click.IntRange(16, 1 << 20), default=2048, show_default=True, help="Of a sequence.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the tables.")
@click.option("--plot", type=_FILE, help="Also draw the use of memory into this SVG file.")
def paging(
    trace_file: Path | None,
    slots: int,
    token_bytes: int,
    block_size: int,
    rate: float | None,
    num_requests: int,
    max_tokens: int,
    seed: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compare paged KV memory with contiguous allocation, on a trace of lengths and without a model.

    The scheduler and block manager are the engine's own. Requests longer than --max-tokens are left out. A trace
    without arrivals is sampled; of one with arrivals, the first requests are taken.
    """
    memory = Memory(slots, token_bytes, max_tokens)
    if slots < memory.least_slots:
        raise CliError(f"--slots {slots}: a sequence of {max_tokens} tokens needs at least {memory.least_slots}")
    try:
        trace = read_trace(trace_file, max_tokens, num_requests, seed) if trace_file else None
        trace = trace or generate(num_requests, max_tokens, seed)
        arrivals = "the trace's" if trace.has_arrivals else "all at once"
        if rate is not None:
            trace, arrivals = trace.drawn(rate, seed), f"Poisson, {rate:g}/s"
        found = _compare(trace, memory, block_size, seed)
    except (TraceError, ModelTooLargeError) as error:
        raise CliError(str(error)) from error
    report = {
        "trace": str(trace_file) if trace_file else "generated",
        **_workload(trace),
        "arrivals": arrivals,
        "max_tokens": max_tokens,
        "slots": slots,
        "kv_bytes": slots * token_bytes,
        "block_size": block_size,
        "seed": seed,
        "schemes": [outcome.to_json() for outcome in found.schemes],
        "sharing": [saving.to_json() for saving in found.sharing],
        "beam_model": _BEAM_MODEL,
        "paper": PAPER,
    }
    if plot is not None:
        _write(plot, _svg(report))
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)


def _compare(trace: PagingTrace, memory: Memory, block_size: int, seed: int) -> Comparison:
    """The comparison, with a progress bar if it takes long."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task("requests played", total=NUM_PARTS * len(trace.requests))
    began_s = time.monotonic()

    def advance(num_requests: int) -> None:
        progress.advance(task, num_requests)
        if not progress.live.is_started and time.monotonic() - began_s > SHOW_AFTER_S:
            progress.start()

    try:
        return compare(trace, memory, block_size, seed, advance)
    finally:
        if progress.live.is_started:
            progress.stop()


def _workload(trace: PagingTrace) -> dict[str, Any]:
    num_requests = len(trace.requests)
    return {
        "requests": num_requests,
        "too_long": trace.num_too_long,
        "mean_input_tokens": sum(request.input_tokens for request in trace.requests) / num_requests,
        "mean_output_tokens": sum(request.output_tokens for request in trace.requests) / num_requests,
    }


def _print(report: dict[str, Any]) -> None:
    click.echo(
        f"{report['trace']}: {report['requests']} requests of at most {report['max_tokens']} tokens "
        f"({report['too_long']} of all are longer and left out), {report['mean_input_tokens']:.1f} in and "
        f"{report['mean_output_tokens']:.1f} out on average; arrivals: {report['arrivals']}\n"
        f"{report['slots']} slots of KV memory ({report['kv_bytes'] / 1e9:.1f} GB), blocks of {report['block_size']}\n"
    )
    table = Table("% of KV memory", box=None, pad_edge=False)
    headings = [heading for heading, _ in _KINDS.values()]
    for heading in (*headings, "states of allocated", "requests at a time", "steps", "preemptions"):
        table.add_column(heading, justify="right")
    for scheme in report["schemes"]:
        shares = [f"{scheme['memory'][kind]:.1%}" for kind in _KINDS]
        counts = (f"{scheme['mean_running']:.2f}", str(scheme["steps"]), str(scheme["preemptions"]))
        table.add_row(scheme["name"], *shares, f"{scheme['token_states_of_allocated']:.1%}", *counts)
    print_table(table)
    table = Table("\nblocks saved by sharing", box=None, pad_edge=False)
    for heading in ("sequences", "saved", "copies", "survive a draw"):
        table.add_column(f"\n{heading}", justify="right")
    for saving in report["sharing"]:
        counts = (str(saving["sequences"]), f"{saving['saved']:.1%}", str(saving["copies"]))
        table.add_row(saving["method"], *counts, f"{saving['survival']:.1%}")
    print_table(table)
    click.echo(
        f"\nbeams: {report['beam_model']}\n"
        "the paper on ShareGPT (SOSP'23): token states 96.3 % paged, 20.4-38.2 % contiguous; 2.2 × the requests of\n"
        "Oracle and 4.3 × those of Max at a time; parallel sampling saves 16.2-30.5 %, beam search 44.3-66.3 %"
    )


def _svg(report: dict[str, Any]) -> str:
    """A bar a scheme, its parts as wide as their share of the memory."""
    left, width, height = 130.0, 600.0, 90 + 44 * len(report["schemes"])
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30:.0f}" height="{height}" '
        f'viewBox="0 0 {left + width + 30:.0f} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{left + width + 30:.0f}" height="{height}" fill="white"/>',
        f'<text x="20" y="24" font-size="15">KV memory: {escape(Path(report["trace"]).name)}</text>',
    ]
    for number, (heading, colour) in enumerate(_KINDS.values()):
        legend_x = 20 + number * 122
        drawn.append(f'<rect x="{legend_x}" y="38" width="12" height="12" fill="{colour}" stroke="#555"/>')
        drawn.append(f'<text x="{legend_x + 16}" y="48" font-size="11">{escape(heading)}</text>')
    for number, scheme in enumerate(report["schemes"]):
        x, y = left, 70 + 44 * number
        drawn.append(f'<text x="20" y="{y + 20}">{escape(scheme["name"])}</text>')
        for kind, (_, colour) in _KINDS.items():
            share = scheme["memory"][kind]
            size = f'x="{x:.1f}" y="{y}" width="{width * share:.1f}" height="30"'
            drawn.append(f'<rect {size} fill="{colour}" stroke="#555"/>')
            if share >= 0.07:  # else the number has no room
                drawn.append(f'<text x="{x + 4:.1f}" y="{y + 20}">{share:.1%}</text>')
            x += width * share
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"drawn: {path}", err=True)
