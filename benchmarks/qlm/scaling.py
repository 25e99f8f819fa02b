"""Promises kept and node-hours of pools that follow the promises, beside a fixed size and beside utilization.

One real hour of bursts (benchmarks/data, Azure's code completion) asks one model, each request with one of QLM's three
classes. Pools begin with their least size. ``utilization`` is the rule of Kubernetes' HorizontalPodAutoscaler on the
share of time for which devices compute, with several targets; ``fixed`` needs no start, and knows the best size
beforehand.

    python benchmarks/qlm/scaling.py --json > scaling.json
    python benchmarks/qlm/scaling_plot.py scaling.json docs/figures/scaling.png
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kept_rows import KeptRows, Row
from rich.console import Console
from rich.table import Table
from runs import add_common_options, figures, names, numbers, provenance

from cli.progress_bar import progress_bar
from services.simulator.devices import catalogue
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.paper import INTERACTIVE_AND_BATCH
from services.simulator.workloads.request import WorkloadRequest
from services.simulator.workloads.trace import Trace
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.config.services.queue import QueueOptions
from shared.files.length_trace import read_lengths

TRACE = Path(__file__).parents[1] / "data" / "azure2023_code.csv.gz"
MODEL, DEVICE = "llama-70b", "a100"
POLICIES = ("slo", "utilization", "fixed")
POOL = "pool"
MAX_NODES = 24
START_S = 30.0
"""Until a node's process is there; then it loads the model, 11.5 s by the published numbers of this device."""
QUICK_REQUESTS = 300
EVERY_S = 10.0  # of what is drawn over time


@dataclass(frozen=True, slots=True)
class Policy:
    """How many nodes there are. One of ``fixed``, ``utilization``, ``slo``, with the size or the target."""

    name: str
    value: float = 0.0
    floor: int = 0
    """Nodes that a pool has at least."""

    def scenario(self, requests: Sequence[WorkloadRequest], start_s: float) -> Scenario:
        """What is simulated."""
        device = catalogue.device(DEVICE, [MODEL])
        if self.name == "fixed":
            names = [f"{DEVICE}-{number}" for number in range(int(self.value))]
            config = catalogue.cluster_config(names, [MODEL], QueueOptions())
            return Scenario(config, dict.fromkeys(names, device), requests)
        options = catalogue.cluster_config([DEVICE], [MODEL], QueueOptions())
        config = ClusterConfig.model_validate(
            {
                **options.model_dump(),
                "nodes": [],
                "pools": [NodePool(name=POOL, min_nodes=self.floor, max_nodes=MAX_NODES, start_s=start_s)],
                "scaling": ScalingOptions(provider="process" if self.name == "slo" else "none"),
            }
        )
        return Scenario(
            config, {POOL: device}, requests, utilization=self.value if self.name == "utilization" else None
        )


def measure(policies: Sequence[Policy], args: argparse.Namespace, rows: KeptRows) -> list[Row]:
    """A row a policy and seed."""
    trace = Trace(args.trace.name, read_lengths(args.trace, catalogue.MAX_MODEL_LEN).lines)
    points = [(policy, seed) for policy in policies for seed in range(args.seeds)]
    done: list[Row] = []
    with progress_bar("simulations", len(points)) as show:
        for policy, seed in points:
            requests = trace.requests(
                min(args.requests, len(trace.lines)),
                Random(seed),
                slos=INTERACTIVE_AND_BATCH,
                models=dict.fromkeys(trace.models, MODEL),
                rate_per_s=None,
            )
            simulated = hashlib.sha256(repr((requests, args.start_s)).encode()).hexdigest()
            row = rows.measured(f"{policy} {simulated}", partial(_row, policy, requests, args.start_s))
            done.append({"seed": seed, **row})
            show(len(done))
    return done


def _row(policy: Policy, requests: Sequence[WorkloadRequest], start_s: float) -> Row:
    began_s = time.process_time()
    run = simulate(policy.scenario(requests, start_s))
    found = figures(run, time.process_time() - began_s)
    return {"policy": policy.name, "value": policy.value, "floor": policy.floor, **found, "nodes": list(_nodes(run))}


def _nodes(run: SimulationRun) -> Iterator[int]:
    """Nodes that are paid for, every `EVERY_S`."""
    for number in range(int((run.end_s - run.start_s) / EVERY_S)):
        now = run.start_s + number * EVERY_S
        yield sum(lease.start_s <= now and (lease.end_s is None or now < lease.end_s) for lease in run.leases)


def table_of(rows: Sequence[Row]) -> Table:
    """A line a run."""
    table = Table("policy", "seed", "node-hours", "kept", "interactive", "batch-1", "batch-2", "kept per node-hour")
    for row in rows:
        name = row["policy"] if row["policy"] == "slo" else f"{row['policy']} {row['value']:g}"
        name += f", at least {row['floor']}" if row["floor"] else ""
        classes = row["slo_attainment_by_class"]
        kept = [row["slo_attainment"], *(classes.get(one, 0.0) for one in ("interactive", "batch-1", "batch-2"))]
        per_hour = row["slo_attainment"] * row["num_requests"] / row["node_hours"]
        table.add_row(
            name, str(row["seed"]), f"{row['node_hours']:.2f}", *(f"{one:.1%}" for one in kept), f"{per_hour:.0f}"
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE, help="requests of one model, with arrivals")
    parser.add_argument("--fixed", type=numbers, default=[6.0, 9.0, 12.0], help="sizes (default 6,9,12)")
    parser.add_argument("--targets", type=numbers, default=[0.7, 0.9], help="of utilization (default 0.7,0.9)")
    parser.add_argument("--floors", type=numbers, default=[1.0, 4.0], help="least sizes of pools (default 1,4)")
    parser.add_argument("--policies", type=partial(names, known=POLICIES), default=list(POLICIES))
    parser.add_argument("--start-s", type=float, default=START_S, help=f"of a node (default {START_S:g})")
    parser.add_argument("--requests", type=int, default=10**9, help="from the beginning of the trace (default: all)")
    parser.add_argument("--seeds", type=int, default=1, help="so many times, with other classes drawn")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REQUESTS} requests, one run of each kind")
    add_common_options(parser)
    args = parser.parse_args()
    if args.quick:
        args.requests = min(args.requests, QUICK_REQUESTS)
        args.fixed, args.targets, args.floors = [2.0], [0.7], [1.0]
    policies = [
        *(Policy("slo", floor=int(floor)) for floor in args.floors),
        *(Policy("utilization", target, int(floor)) for target in args.targets for floor in args.floors),
        *(Policy("fixed", size) for size in args.fixed),
    ]
    found = measure(
        [policy for policy in policies if policy.name in args.policies], args, KeptRows.of_this_code(args.rows)
    )
    if args.json:
        what: dict[str, Any] = {"trace": args.trace.name, "model": MODEL, "device": DEVICE, "start_s": args.start_s}
        print(json.dumps(provenance(range(args.seeds)) | what | {"rows": found}))
    else:
        Console().print(table_of(found))


if __name__ == "__main__":
    main()
