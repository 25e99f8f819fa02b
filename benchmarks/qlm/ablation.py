"""What each part of QLM's serving is worth (SoCC'24 §8): one thing is varied at a time, all else stays.

    python benchmarks/qlm/ablation.py --json > ablation.json
    python benchmarks/qlm/ablation.py --study operations,tenants
    python benchmarks/qlm/ablation_plot.py ablation.json docs/figures/qlm_ablation.png

Studies: ``operations`` (each serving operation off), ``mixes`` (devices of equal price), ``mega`` (share of prompts
with thousands of tokens), ``models`` (twelve fine-tuned models on four devices), ``tenants`` (one floods the queue) and
``delta`` (size of request groups against attainment and the effort of planning).
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from runs import names, provenance, run_all
from studies import STUDIES, Scale

FULL = Scale(num_requests=1_200, share=1.0)
QUICK = Scale(num_requests=100, share=0.1)


def measure(study: str, scale: Scale, seed: int) -> list[dict[str, Any]]:
    """A row a case."""
    cases, figures = STUDIES[study](scale, seed)
    return [row | figures(run) for row, run in run_all(cases, len(cases))]


def table_of(results: dict[str, list[dict[str, Any]]]) -> Table:
    """A line a case; what only one study has is in the JSON."""
    table = Table(
        "study", "case", "policy", "kept", "answers/s", "TTFT p50, p99 (s)", "swaps", "evicted", "plans", "CPU s"
    )
    for study, rows in results.items():
        for row in rows:
            waits = f"{row['ttft_p50_s']:.1f}, {row['ttft_p99_s']:.1f}"
            kept, speed = f"{row['slo_attainment']:.1%}", f"{row['throughput_rps']:.1f}"
            rest = [str(row[name]) for name in ("model_swaps", "evictions", "num_plans", "processor_s")]
            table.add_row(study, row["label"], row["policy"], kept, speed, waits, *rest)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=partial(names, known=list(STUDIES)), default=list(STUDIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="100 requests at a tenth of the rate")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args()
    results = {study: measure(study, QUICK if args.quick else FULL, args.seed) for study in args.study}
    if args.json:
        print(json.dumps(provenance(args.seed) | {"studies": results}))
    else:
        Console().print(table_of(results))


if __name__ == "__main__":
    main()
