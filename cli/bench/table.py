"""The table of `treadle bench engine`, and the line about the machine above it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gpu_node.bench.report import Machine, PointResult

_HEADINGS = (
    "s",
    "out tok/s",
    "first tokens s",
    "decode step ms",
    "roofline s",
    "of roofline",
    "decode reads GB/s",
    "of machine",
    "idle ms/step",
    "preemptions",
)


def machine_line(machine: Machine) -> str:
    """What the machine does at best."""
    threads = f"{machine.num_threads} thread" + ("s" if machine.num_threads > 1 else "")
    pinned = f" on CPUs {', '.join(map(str, machine.cpus))}" if machine.cpus else ""
    onednn = machine.onednn_flops_per_s
    others = "oneDNN not measured: no torch" if onednn is None else f"oneDNN {onednn / 1e9:.0f}"
    return (
        f"{threads}{pinned}: read {machine.read_bytes_per_s / 1e9:.1f} GB/s, multiply bfloat16 at "
        f"{machine.flops_per_s / 1e9:.0f} GFLOP/s ({others}, our kernels {machine.kernels_flops_per_s / 1e9:.0f}); "
        f"load {machine.load:.2f}"
    )


def points_table(results: Sequence[PointResult]) -> Table:
    """A row a point."""
    table = Table("requests×in×out", box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(result.point.replace("x", "×"), *_cells(result))
    return table


def _cells(result: PointResult) -> tuple[str, ...]:
    return (
        f"{result.seconds:.2f}",
        f"{result.output_tokens_per_s:.1f}",
        f"{result.first_tokens_s:.2f}",
        "–" if result.decode_step_s is None else f"{result.decode_step_s * 1e3:.2f}",
        f"{result.roofline_s:.2f}",
        f"{result.roofline_share:.0%}",
        "–" if result.decode_bytes_per_s is None else f"{result.decode_bytes_per_s / 1e9:.1f}",
        "–" if result.decode_read_share is None else f"{result.decode_read_share:.0%}",
        f"{result.device_idle_s / result.num_steps * 1e3:.2f}",
        str(result.num_preemptions),
    )
