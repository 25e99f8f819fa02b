"""What each part of QLM's serving is worth (SoCC'24 §8): one thing is varied at a time, all else stays.

    python benchmarks/qlm/ablation.py --seeds 0,1,2 --rows ablation.rows --json > ablation.json
    python benchmarks/qlm/ablation.py --study operations,tenants
    python benchmarks/qlm/ablation_plot.py ablation.json docs/figures/qlm_ablation.png

Studies: ``operations`` (each serving operation off), ``mixes`` (devices of equal price), ``mega`` (share of prompts
with thousands of tokens), ``models`` (devices that twelve fine-tuned models need), ``tenants`` (one floods the queue)
and ``delta`` (size of request groups against attainment and the effort of planning).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial

from averages import averaged, kept
from kept_rows import KeptRows, Row
from rich.console import Console
from rich.table import Table
from runs import add_common_options, names, provenance, run_all, seed_numbers
from studies import STUDIES, Scale

FULL = Scale(num_requests=1_200, share=1.0)
QUICK = Scale(num_requests=100, share=0.1)


def measure(study: str, scale: Scale, seeds: Sequence[int], kept_rows: KeptRows) -> list[Row]:
    """A row a case and seed."""
    rows = []
    for seed in seeds:
        cases, figures = STUDIES[study](scale, seed)
        rows += [{"seed": seed, **row} for row in run_all(cases, len(cases), kept_rows, figures)]
    return rows


def table_of(results: dict[str, list[Row]]) -> Table:
    """A line a case; what only one study has is in the JSON."""
    table = Table(
        "study", "case", "policy", "kept", "answers/s", "TTFT p50, p99 (s)", "swaps", "evicted", "plans", "CPU s"
    )
    for study, rows in results.items():
        for row in averaged(rows):
            waits = f"{row['ttft_p50_s']:.1f}, {row['ttft_p99_s']:.1f}"
            rest = [f"{row[name]:.4g}" for name in ("model_swaps", "evictions", "num_plans", "processor_s")]
            table.add_row(study, row["label"], row["policy"], kept(row), f"{row['throughput_rps']:.1f}", waits, *rest)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=partial(names, known=list(STUDIES)), default=list(STUDIES))
    parser.add_argument("--seeds", type=seed_numbers, default=[0], help="a run of each case for each (default 0)")
    parser.add_argument("--quick", action="store_true", help="100 requests at a tenth of the rate")
    add_common_options(parser)
    args = parser.parse_args()
    rows = KeptRows.of_this_code(args.rows)
    results = {study: measure(study, QUICK if args.quick else FULL, args.seeds, rows) for study in args.study}
    if args.json:
        print(json.dumps(provenance(args.seeds) | {"studies": results}))
    else:
        Console().print(table_of(results))


if __name__ == "__main__":
    main()
