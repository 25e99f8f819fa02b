"""``python -m tests.fuzz --inputs 10000000 --seed 1 --json``: all targets, in the long form."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fuzz.corpus import FOLDER
from tests.fuzz.fleet import Outcome, run_target
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

LEAST_INPUTS = 1000
"""Of each target, however small its share is."""


def shares(targets: list[Target], num_inputs: int) -> dict[str, int]:
    """How many inputs each target gets; at least ``num_inputs`` in all."""
    whole = sum(target.share for target in targets)
    return {target.name: max(LEAST_INPUTS, -int(-num_inputs * target.share // whole)) for target in targets}


def main() -> int:
    """The command; status 1 where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all (default: a million)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="this one only; may be repeated")
    parser.add_argument("--findings", type=Path, default=FOLDER, help="where inputs are kept that break a rule")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    targets = [TARGETS[name] for name in options.target or TARGETS]
    outcomes: dict[str, Outcome] = {}
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for name, num_inputs in shares(targets, options.inputs).items():
            task = progress.add_task(name, total=num_inputs)
            heard = partial(_show, progress, task)
            outcomes[name] = run_target(TARGETS[name], num_inputs, options.seed, options.findings, heard)
    sys.stdout.write(_json(outcomes, options.seed) if options.json else "")
    if not options.json:
        _print(outcomes)
    return 1 if any(outcome.num_found for outcome in outcomes.values()) else 0


def _show(progress: Progress, task: TaskID, num_inputs: int) -> None:
    progress.update(task, completed=num_inputs)


def _json(outcomes: dict[str, Outcome], seed: int) -> str:
    targets = {
        name: {
            "inputs": outcome.num_inputs,
            "decoded": outcome.num_decoded,
            "findings": len(outcome.findings),
            "seconds": round(outcome.seconds, 1),
            "guided": outcome.is_guided,
            "grown_mb": round(outcome.grown_bytes / 1e6, 1),
            "kept": outcome.findings,
        }
        for name, outcome in outcomes.items()
    }
    total = sum(outcome.num_inputs for outcome in outcomes.values())
    found = sum(len(outcome.findings) for outcome in outcomes.values())
    return json.dumps({"inputs": total, "findings": found, "seed": seed, "targets": targets}, indent=1) + "\n"


def _print(outcomes: dict[str, Outcome]) -> None:
    table = Table("target", "inputs", "decoded", "findings", "s", "by coverage")
    for name, outcome in outcomes.items():
        share = f"{outcome.num_decoded / max(outcome.num_inputs, 1):.0%}"
        guided = "yes" if outcome.is_guided else "no"
        table.add_row(
            name, f"{outcome.num_inputs:,}", share, str(len(outcome.findings)), f"{outcome.seconds:.0f}", guided
        )
    console = Console()
    console.print(table)
    for outcome in outcomes.values():
        for line in outcome.findings:
            console.print(line, markup=False)


if __name__ == "__main__":
    sys.exit(main())
