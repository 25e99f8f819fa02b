"""Devices that keep a share of the promises, for QLM and what it is compared with (SoCC'24 §8).

Doubling and bisection over simulations, by the search of ``treadle plan``; then every number between the least and the
most that were tried, since more devices are not always better, and the search skips most. The ratio is to QLM's number.

    python benchmarks/qlm/devices_needed.py --workload wa --rate 30 --json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial

from kept_rows import KeptRows, Row
from rich.console import Console
from rich.table import Table
from runs import Case, add_common_options, drawn, models_of, names, provenance
from variants import COMPARED, VARIANTS

from cli.progress_bar import progress_bar
from services.simulator.devices.capacity import MAX_DEVICES, Attainment, CapacityError, attainment_of, least_devices
from services.simulator.devices.catalogue import devices_of
from services.simulator.reports.report import attainment
from services.simulator.simulation import simulate
from services.simulator.workloads.paper import WORKLOADS
from shared.config.hardware import DEVICES

CONFIDENCE = 0.95


def needed(policy: str, args: argparse.Namespace, rows: KeptRows) -> tuple[int, list[Attainment]]:
    """The least number for a policy, and all that were tried; `SystemExit` where none is enough."""

    def trial(num_devices: int, number: int) -> float:
        requests = drawn(args.workload, args.rate, args.requests, args.seed + number)
        models = models_of(requests)
        devices = devices_of({args.device: num_devices}, models)
        one = VARIANTS[policy]
        case = Case(f"{num_devices} {args.device}", devices, models, requests, one.policy, None, one.operations)
        kept: float = rows.measured("attainment of " + case.question(), lambda: _attainment(case))["attainment"]
        return kept

    with progress_bar(f"{policy}: trials", MAX_DEVICES.bit_length() * args.trials) as show:
        try:
            least, tried = least_devices(trial, args.target, args.trials, CONFIDENCE, show)
            return least, with_all_between(trial, args.trials, tried)
        except CapacityError as error:
            raise SystemExit(f"{policy}: {error}; try a lower --rate") from error


def with_all_between(
    trial: Callable[[int, int], float], num_trials: int, tried: Sequence[Attainment]
) -> list[Attainment]:
    """Of the numbers that were tried, and of all between them."""
    known = {one.num_devices: one for one in tried}
    return [
        known.get(count) or attainment_of(count, [trial(count, number) for number in range(num_trials)], CONFIDENCE)
        for count in range(min(known), max(known) + 1)
    ]


def _attainment(case: Case) -> Row:
    run = simulate(case.scenario())
    return {"attainment": attainment(run.recording.outcomes, run.scenario.config)}


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="wa")
    parser.add_argument("--rate", type=float, default=30.0, help="arrivals a second (default 30)")
    parser.add_argument("--device", choices=list(DEVICES), default="a100")
    parser.add_argument("--target", type=float, default=0.9, help="share of the promises (default 0.9)")
    parser.add_argument("--policies", type=partial(names, known=list(VARIANTS)), default=list(COMPARED))
    parser.add_argument("--requests", type=int, default=1_000, help="of a trial (default 1000)")
    parser.add_argument("--trials", type=int, default=1, help="samples; their lower bound is held to the target")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the next have the next")
    add_common_options(parser)
    args = parser.parse_args()
    if min(args.rate, args.requests, args.trials) <= 0 or not 0 < args.target < 1:
        parser.error("--rate, --requests and --trials must be above 0, --target between 0 and 1")
    kept_rows = KeptRows.of_this_code(args.rows)
    rows: list[Row] = []
    for policy in args.policies:
        count, tried = needed(policy, args, kept_rows)
        row = {"policy": policy, "num_devices": count, "tried": {one.num_devices: one.mean for one in tried}}
        rows.append(row | {"ratio": round(count / rows[0]["num_devices"], 3) if rows else 1.0})
    if args.json:
        print(json.dumps(provenance(range(args.seed, args.seed + args.trials)) | {"rows": rows}))
        return
    table = Table("policy", "devices", f"to {rows[0]['policy']}'s", "promises kept by so many")
    for row in rows:
        kept = ", ".join(f"{count}: {share:.1%}" for count, share in row["tried"].items())
        table.add_row(row["policy"], str(row["num_devices"]), f"{row['ratio']:.2f}", kept)
    Console().print(table)


if __name__ == "__main__":
    main()
