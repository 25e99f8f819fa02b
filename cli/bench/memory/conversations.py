"""`treadle bench conversations`: what KV tiers below the device are worth to users who come back."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.bench.memory.warm_routing import NUM_ROUTINGS, NUM_TURNS, RoutingRow, routing_row
from cli.bench.process import lines_of
from cli.config.option import config_option
from cli.models.argument import find_model
from cli.progress_bar import progress_bar
from cli.tables import print_table
from gpu_node.bench.conversations.workload import (
    FULL,
    LONE_ANSWER_TOKENS,
    LONE_PROMPT_TOKENS,
    QUICK,
    Size,
    history_tokens,
)
from gpu_node.bench.report import ConversationRow, CopyOutRow
from gpu_node.bench.report import PointProgress as Doing
from shared.config.config import ClusterConfig, load_config, parse_config

NUM_ROWS = 3
"""In which all turns are played; one more plays the last."""


LEAST_ROUTED_USERS, MOST_ROUTED_USERS = 40, 100
"""Of two nodes: with fewer, their devices have room for all; with more, nothing is seen that these do not show."""


@click.command("conversations")
@config_option
@click.option("--model", help="A configured name, a GGUF file or a Hugging Face directory.  [default: the first model]")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads that compute.  [default: one a CPU]")
@click.option("--executor", type=click.Choice(["cpu", "reference"]), default="cpu", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="On the SSD.")
@click.option("--quick", is_flag=True, help="10 users instead of 200.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def conversations(
    config_file: Path | None,
    model: str | None,
    threads: int | None,
    executor: str,
    folder: Path | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure users who talk to a model in turns, on a device with room for one in ten of their conversations.

    Without tiers, with host memory, with an SSD below less of it, and after a cold start with the SSD alone: prompt
    tokens computed, where the others were found, the time to first tokens, and whether every token is the same. Then
    what copying out costs where nobody comes back, and what two nodes find (simulated) if requests are sent there.
    """
    size = QUICK if quick else FULL
    config = _measured(load_config(config_file), model, threads, executor)
    arguments = [*(["--quick"] if quick else []), *(["--folder", str(folder)] if folder else [])]
    rows, copies = _rows(config, arguments, size)
    routing = _routing(size)
    report = {
        "users": size.num_users,
        "turns": size.num_turns,
        "device_room_users": size.room_users,
        "rows": [_row(row, copies) for row in rows],
        "nothing_returns": [msgspec.to_builtins(one) for one in copies],
        "two_nodes": asdict(routing),
        "summary": summary(rows, copies) | routing_summary(routing),
    }
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_table(_table(rows))
        for name, value in report["summary"].items():  # type: ignore[attr-defined]
            click.echo(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")


def summary(rows: list[ConversationRow], copies: list[CopyOutRow]) -> dict[str, Any]:
    """What the rows come to, each beside ``off``."""
    by_name = {row.row: row for row in rows}
    off, host, cold = by_name["off"], by_name["host"], by_name["ssd_cold"]
    return {
        "host_prefill_vs_off": host.prefill_tokens / off.prefill_tokens,
        "host_ssd_prefill_vs_off": by_name["host_ssd"].prefill_tokens / off.prefill_tokens,
        "host_later_ttft_vs_off": host.ttft_s.later / off.ttft_s.later,
        "host_ssd_later_ttft_vs_off": by_name["host_ssd"].ttft_s.later / off.ttft_s.later,
        "ssd_cold_prefill_vs_off": cold.prefill_tokens / cold.prompt_tokens,
        "throughput_nothing_returns": 1 - max(one.copy_out_cost for one in copies),
        "tokens_equal": all(row.tokens_equal for row in rows),
    }


def routing_summary(row: RoutingRow) -> dict[str, Any]:
    """What routing to what is cached comes to beside blind routing."""
    kept = row.promises_kept
    return {
        "two_nodes_hits_vs_blind": row.hits_vs_blind,
        "two_nodes_promises_kept_vs_blind": kept["warm"] - kept["blind"],
    }


def _routing(size: Size) -> RoutingRow:
    num_users = min(max(size.num_users, LEAST_ROUTED_USERS), MOST_ROUTED_USERS)
    with progress_bar("two nodes, simulated", NUM_ROUTINGS * num_users * NUM_TURNS) as show:
        return routing_row(num_users, show)


def _row(row: ConversationRow, copies: list[CopyOutRow]) -> dict[str, Any]:
    costs = {one.row: one.copy_out_cost for one in copies}
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | ({"copy_out_cost": costs[row.row]} if row.row in costs else {})


def _measured(config: ClusterConfig, model: str | None, threads: int | None, executor: str) -> ClusterConfig:
    """One node, one model."""
    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    node = {"name": "bench", "num_threads": threads or num_cpus, "executor": executor}
    longest_tokens = max(history_tokens(FULL.num_turns), LONE_PROMPT_TOKENS + LONE_ANSWER_TOKENS)
    spec = replace(find_model(model or config.models[0].name, config), max_model_len=longest_tokens)
    text = yaml.safe_dump({"models": [asdict(spec)], "nodes": [node], "engine": asdict(config.engine)})
    return parse_config(text, "treadle bench conversations")


def _rows(config: ClusterConfig, arguments: list[str], size: Size) -> tuple[list[ConversationRow], list[CopyOutRow]]:
    """With a progress bar on stderr where that is a terminal."""
    num_prompt_tokens = size.num_users * sum(history_tokens(turn + 1) for turn in range(size.num_turns))
    num_lone_tokens = size.num_lone * (size.num_repeats + 1) * LONE_PROMPT_TOKENS
    total = NUM_ROWS * (num_prompt_tokens + num_lone_tokens) + size.num_users * history_tokens(size.num_turns)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    rows: list[ConversationRow] = []
    copies: list[CopyOutRow] = []
    task = progress.add_task("starting", total=total)
    with progress, closing(lines_of(config, arguments, module="gpu_node.bench.conversations")) as lines:
        for line in lines:
            match line:
                case Doing():
                    progress.update(task, description=line.doing, advance=line.num_rows)
                case ConversationRow():
                    rows.append(line)
                case CopyOutRow():
                    copies.append(line)
                case _:
                    raise AssertionError(f"no part of it: {line}")
    return rows, copies


def _table(rows: list[ConversationRow]) -> Table:
    table = Table("tiers", box=None, pad_edge=False)
    for name in ("prefilled", "of", "device", "host", "SSD", "TTFT first", "later", "s", "equal"):
        table.add_column(name, justify="right")
    for row in rows:
        rates = (row.hit_rate.device, row.hit_rate.host, row.hit_rate.ssd)
        table.add_row(
            row.row,
            str(row.prefill_tokens),
            str(row.prompt_tokens),
            *(f"{rate:.1%}" for rate in rates),
            *(f"{one * 1000:.0f} ms" for one in (row.ttft_s.first, row.ttft_s.later)),
            f"{row.seconds:.1f}",
            "yes" if row.tokens_equal else "NO",
        )
    return table
