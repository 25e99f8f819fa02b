"""Promises kept and throughput over the arrival rate, for QLM and what it is compared with (SoCC'24 §8).

Rates are shares of the cluster's capacity, which is measured first: answers a second when all requests are there at
once, in the order that QLM's scheduler finds. ``--rates`` gives rates themselves. A file of requests takes the place of
a workload; without ``--rates`` and ``--shares`` it runs at its own rate.

    python benchmarks/qlm/attainment.py --seeds 0,1,2 --rows attainment.rows --json > attainment.json
    python benchmarks/qlm/attainment.py --workload wa --devices a100=50,a10=30 --rates 350 --json
    python benchmarks/qlm/attainment_plot.py attainment.json docs/figures/qlm_attainment.png
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from averages import averaged, kept
from kept_rows import KeptRows
from rich.console import Console
from rich.table import Table
from runs import (
    Case,
    add_common_options,
    capacity_rps,
    device_counts,
    drawn,
    job_count,
    models_of,
    names,
    numbers,
    provenance,
    run_all,
    seed_numbers,
)
from variants import COMPARED, VARIANTS

from services.simulator.devices.catalogue import devices_of
from services.simulator.workloads.paper import WORKLOADS

SHARES = (0.7, 1.0, 1.3)
NUM_REQUESTS = 3_500  # of a trace in the paper
QUICK = {"devices": {"a100": 1, "a10": 1}, "shares": [1.0], "requests": 300}


Point = tuple[float | None, str, int]


def measure(workload: str, args: argparse.Namespace, rows: KeptRows) -> dict[str, Any]:
    """One workload at all rates, under all policies, with all seeds; capacity is measured with the first."""
    capacity = None
    if args.rates is not None:
        rates: list[float | None] = list(args.rates)
    elif workload in WORKLOADS or args.shares is not None:
        capacity = capacity_rps(workload, args.devices, args.seeds[0], rows)
        rates = [round(share * capacity, 2) for share in args.shares or SHARES]
    else:
        rates = [None]
    points = list(product(rates, args.policies, args.seeds))
    done = run_all(_cases(workload, points, args), len(points), rows, num_jobs=args.jobs)
    return {
        "workload": workload,
        "devices": args.devices,
        "capacity_rps": capacity and round(capacity, 3),
        "num_requests": done[0]["num_requests"],
        "rows": [{"rate_rps": rate, "seed": seed, **row} for (rate, _, seed), row in zip(points, done, strict=True)],
    }


def _cases(workload: str, points: Sequence[Point], args: argparse.Namespace) -> Iterator[Case]:
    for rate, policy, seed in points:
        requests = drawn(workload, rate, args.requests, seed)
        models = models_of(requests)
        one = VARIANTS[policy]
        devices = devices_of(args.devices, models)
        yield Case(f"{workload} {rate}", devices, models, requests, one.policy, None, one.operations, policy)


def table_of(results: list[dict[str, Any]]) -> Table:
    """A line a run."""
    table = Table(
        "workload", "rate/s", "policy", "kept", "started in time", "answers/s", "tokens/s", "swaps", "evicted"
    )
    for result in results:
        for row in averaged(result["rows"]):
            shares = [kept(row), f"{row['started_in_time']:.1%}"]
            counts = [f"{row[name]:.4g}" for name in ("model_swaps", "evictions")]
            rates = [f"{row['throughput_rps']:.1f}", f"{row['output_tok_s']:.0f}"]
            rate = f"{row['rate_rps']:g}" if row["rate_rps"] else "its own"
            table.add_row(result["workload"], rate, row["policy"], *shares, *rates, *counts)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="wa,wb,wc", help="of wa, wb, wc, files, with commas between them")
    parser.add_argument("--devices", type=device_counts, help="default a100=5,a10=3")
    parser.add_argument(
        "--policies",
        type=partial(names, known=list(VARIANTS)),
        default=list(COMPARED),
        help=f"of {', '.join(VARIANTS)}",
    )
    rates = parser.add_mutually_exclusive_group()
    rates.add_argument("--shares", type=numbers, help="of the capacity (default 0.7,1,1.3; of a file: its own rate)")
    rates.add_argument("--rates", type=numbers, help="arrivals a second")
    parser.add_argument("--requests", type=int, help=f"of a run (default {NUM_REQUESTS})")
    parser.add_argument("--seeds", type=seed_numbers, default=[0], help="a run of each point for each (default 0)")
    parser.add_argument("--quick", action="store_true", help="two devices, one rate, 300 requests")
    parser.add_argument("--jobs", type=job_count, default=1, help="simulations side by side (default 1)")
    add_common_options(parser)
    args = parser.parse_args()
    args.devices = args.devices or (QUICK["devices"] if args.quick else {"a100": 5, "a10": 3})
    args.requests = args.requests or (QUICK["requests"] if args.quick else NUM_REQUESTS)
    if args.quick and not args.rates:
        args.shares = args.shares or QUICK["shares"]
    if args.requests < 1:
        parser.error("--requests must be at least 1")
    rows = KeptRows.of_this_code(args.rows)
    results = [measure(workload, args, rows) for workload in args.workload.split(",")]
    if args.json:
        print(json.dumps(provenance(args.seeds) | {"results": results}))
    else:
        Console().print(table_of(results))


if __name__ == "__main__":
    main()
