"""Tiers and warm routing on a trace with contents: the same requests on simulated nodes, with and without.

The file has `hash_ids` (docs/operations.md, Size). Rows: nothing below the device and blind routing; tiers and blind
routing; tiers and routing to what is cached. Deterministic; prints one JSON object.

    python benchmarks/contents_simulated.py TRACE.csv.gz --devices h100=8 --host-bytes 256e9 --ssd-bytes 2e12
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from cli.progress_bar import progress_bar
from services.simulator.cluster.cluster import stepped
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, simulate
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.request import WorkloadRequest
from services.simulator.workloads.trace import Trace
from shared.config.engines.tiers import NO_TIERS, TierOptions
from shared.config.hardware import model_named
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.files.length_trace import HASH_TOKENS, read_lengths

BLOCK_TOKENS = 64  # an eighth of what a number of the file stands for
STEP_TOKENS = 2_048
FIELDS = ("slo_attainment", "ttft_p50_s", "ttft_p99_s", "prompt_tokens_found", "device_utilisation", "makespan_s")


def most_found(requests: list[WorkloadRequest]) -> float:
    """Share of prompt tokens that came in an earlier request, as a whole beginning of it."""
    seen: set[int] = set()
    found = asked = 0
    for request in requests:
        asked += request.prompt_tokens
        # a number stands for what came before it as well, in files of this kind
        num_known = next(
            (place for place, one in enumerate(request.hash_ids) if one not in seen), len(request.hash_ids)
        )
        found += min(HASH_TOKENS * num_known, request.prompt_tokens - 1)
        seen.update(request.hash_ids)
    return found / asked


def row(
    requests: list[WorkloadRequest], model: str, devices: dict[str, int], tiers: TierOptions, *, is_warm: bool
) -> dict[str, Any]:
    """One simulation."""
    lens = {model: model_named(model).context_tokens}
    nodes = devices_of(devices, [model], max_model_lens=lens)
    queue = QueueOptions(operations=OperationOptions(warm=is_warm))
    config = cluster_config(list(nodes), [model], queue, max_model_lens=lens, tiers=tiers)
    engine = replace(config.engine, block_size=BLOCK_TOKENS, step_tokens=STEP_TOKENS)
    config = config.model_copy(update={"engine": engine})
    began_s = time.perf_counter()
    with progress_bar("requests over", len(requests)) as show:
        found = report(simulate(Scenario(config, nodes, requests, make_engine=stepped), show))
    return {name: found[name] for name in FIELDS} | {"sim_wall_s": round(time.perf_counter() - began_s, 1)}


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--devices", default="h100=8")
    parser.add_argument("--host-bytes", type=float, default=256e9)
    parser.add_argument("--ssd-bytes", type=float, default=2e12)
    parser.add_argument("--requests", type=int, default=1_000_000, help="the first so many of the file")
    options = parser.parse_args()
    kind, _, number = options.devices.partition("=")
    lines = read_lengths(options.trace, model_named(options.model).context_tokens)
    trace = Trace(options.trace.name, lines.lines)
    requests = trace.requests(
        min(options.requests, len(lines.lines)),
        Random(0),
        slos=WeightedNames({"interactive": 1}),
        models=dict.fromkeys(trace.models, options.model),
        rate_per_s=None,
    )
    tiers = TierOptions(int(options.host_bytes), int(options.ssd_bytes), "simulated")
    forms = {"plain": (NO_TIERS, False), "tiers": (tiers, False), "tiers_warm": (tiers, True)}
    rows = {
        name: row(requests, options.model, {kind: int(number)}, below, is_warm=is_warm)
        for name, (below, is_warm) in forms.items()
    }
    summary = {
        "found": rows["tiers_warm"]["prompt_tokens_found"]["all"],
        "most_found": round(most_found(requests), 4),
        "ttft_p50_vs_plain": round(rows["tiers_warm"]["ttft_p50_s"] / rows["plain"]["ttft_p50_s"], 3),
    }
    print(
        json.dumps(
            {"requests": len(requests), "num_too_long": lines.num_too_long, "rows": rows, "summary": summary}, indent=1
        )
    )


if __name__ == "__main__":
    main()
