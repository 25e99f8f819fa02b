"""Ten simulated runs whose reports are recorded: a change that shall not change decisions leaves every byte of them.

``python benchmarks/qlm/recorded_runs.py`` runs them and compares (exit status 1 where one differs); ``--record`` writes
them down anew, in the commit that means to change them. Floating-point sums may differ between kinds of processors, so
a comparison is between two commits on one machine: record at the one, compare at the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "data" / "recorded_runs.json"
NUM_JOBS = 2
NUM_REQUESTS = 300
WALL_KEY = "sim_wall_s"  # how long the simulation took: the one number that is no decision

RUNS = {
    "wa qlm": "--workload wa --policy qlm --devices a100=2,a10=2 --rate 20 --seed 1",
    "wb qlm": "--workload wb --policy qlm --devices a100=5,a10=3 --rate 8 --seed 2",
    "wc qlm": "--workload wc --policy qlm --devices a100=2 --rate 6 --seed 3",
    "wa qlm, one device": "--workload wa --policy qlm --devices a100=1 --rate 40 --seed 4",
    "wb qlm, small batches": "--workload wb --policy qlm --devices a100=3 --rate 6 --max-num-seqs 16 --seed 5",
    "wb qlm, no eviction": "--workload wb --policy qlm --devices a100=3 --rate 6 --no-evict --no-migrate --seed 6",
    "wb edf": "--workload wb --policy edf --devices a100=3,a10=1 --rate 6 --seed 7",
    "wa fcfs": "--workload wa --policy fcfs --devices a100=2 --rate 20 --seed 8",
    "wb shepherd": "--workload wb --policy shepherd --devices a100=3 --rate 6 --seed 9",
    "wa qlm, step by step": "--workload wa --policy qlm --devices a100=1 --rate 10 --engine stepped --seed 10",
}


def main() -> int:
    """Exit status 1 where a run differs from what is recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write them down anew")
    parser.add_argument("--json", action="store_true", help="print the digests as one object")
    options = parser.parse_args()
    with ThreadPoolExecutor(NUM_JOBS) as pool:
        found = dict(zip(RUNS, pool.map(digest, RUNS.values()), strict=True))
    if options.record:
        RECORDED.write_text(json.dumps(found, indent=2) + "\n")
    recorded: dict[str, str] = json.loads(RECORDED.read_text())
    differing = [name for name in RUNS if found[name] != recorded.get(name)]
    if options.json:
        print(json.dumps({"runs": found, "differing": differing}))
    for name in differing:
        print(f"differs: {name} (treadle sim run {RUNS[name]} --requests {NUM_REQUESTS} --json)", file=sys.stderr)
    return 1 if differing else 0


def digest(arguments: str) -> str:
    """SHA-256 of a run's report."""
    command = [sys.executable, "-m", "cli", "sim", "run", *arguments.split(), "--requests", str(NUM_REQUESTS), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    del report[WALL_KEY]
    return hashlib.sha256(json.dumps(report).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
