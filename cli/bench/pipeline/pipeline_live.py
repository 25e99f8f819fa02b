"""`treadle bench pipeline` without ``--predicted``: pipelines on the CPU device, measured and predicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.status import Status
from rich.table import Table

from cli.bench.process import lines_of
from cli.models.argument import find_model
from cli.tables import print_table
from gpu_node.bench.point import parse_points
from gpu_node.bench.report import Machine, PipelineRow, PointProgress
from shared.config.config import ClusterConfig, parse_config
from shared.config.pipelines.pipelines import pipelines_folder

POINTS, QUICK_POINTS = "64x256x128,64x512x64", "16x48x16"
NUM_THREADS = 2
KV_BYTES = 2 << 30


def bench_live(config: ClusterConfig, *, quick: bool, as_json: bool, keep: bool) -> None:
    """Measure the first model of ``config``; ``keep``: what is found is for ``engine.pipeline: auto`` from now on."""
    spec = find_model(config.models[0].name, config)
    points = QUICK_POINTS if quick else POINTS
    most = max(point.num_requests for point in parse_points(points))
    options = asdict(config.engine) | {"kv_cache_bytes": KV_BYTES, "max_num_seqs": most, "pipeline": "off"}
    node = {"name": "bench", "num_threads": NUM_THREADS, "executor": "cpu"}
    text = yaml.safe_dump({"models": [asdict(spec)], "nodes": [node], "engine": options})
    arguments = ["--points", points, *(["--quick"] if quick else [])]
    machine, rows = _said(parse_config(text, "treadle bench pipeline"), arguments)
    if keep:
        _keep(pipelines_folder(config.data_dir), rows)
    report = {
        "machine": {name: value for name, value in msgspec.to_builtins(machine).items() if name != "kind"},
        "interference": [_interference(row) for row in rows],
        "points": [_point(row) for row in rows],
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        print_table(_table(report))


def _said(config: ClusterConfig, arguments: Sequence[str]) -> tuple[Machine, list[PipelineRow]]:
    """What the measuring process says; what it does now is on stderr where that is a terminal."""
    console = Console(stderr=True)
    rows, machines = [], []
    said = closing(lines_of(config, arguments, module="gpu_node.bench.pipeline"))
    with Status("starting", console=console) as status, said as lines:
        for line in lines:
            match line:
                case Machine():
                    machines.append(line)
                case PointProgress():
                    status.update(line.doing)
                case PipelineRow():
                    rows.append(line)
                case _:
                    raise AssertionError(f"no part of this: {line}")
    (machine,) = machines
    return machine, rows


def _keep(folder: Path, rows: Sequence[PipelineRow]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        path = folder / f"{row.point}.json"
        path.write_text(row.pipeline, encoding="utf-8")
        click.echo(f"written: {path}", err=True)


def _interference(row: PipelineRow) -> dict[str, Any]:
    return {"point": row.point, "r": row.r, "p": row.p, "spread": row.spread, "num_operators": row.num_seen}


def _point(row: PipelineRow) -> dict[str, Any]:
    return {
        "point": row.point,
        "off_tok_s": row.off_tok_s,
        "nano_only_tok_s": row.nano_only_tok_s,
        "auto_tok_s": row.auto_tok_s,
        "predicted_gain": row.predicted_gain,
        "gain": row.auto_tok_s / row.off_tok_s,
        "bound_gain": row.bound_gain,
        "step_error": {"sequential": row.sequential_error, "overlapped": row.overlapped_error},
        "bits_equal": row.bits_equal,
    }


def _table(report: dict[str, Any]) -> Table:
    table = Table(box=None)
    names = ("point", "off tok/s", "nano-only tok/s", "auto tok/s", "predicted gain", "gain", "bound", "equal")
    for name in names:
        table.add_column(name, justify="left" if name == "point" else "right")
    for one in report["points"]:
        speeds = (f"{one[name]:,.0f}" for name in ("off_tok_s", "nano_only_tok_s", "auto_tok_s"))
        gains = (f"{one[name]:.3f}" for name in ("predicted_gain", "gain", "bound_gain"))
        table.add_row(one["point"], *speeds, *gains, "yes" if one["bits_equal"] else "NO")
    return table
