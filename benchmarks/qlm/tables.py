"""Makes the tables of policies in docs/performance.md out of committed results.

    python benchmarks/qlm/tables.py benchmarks/data/qlm

Reads what `tables.sh` has written: each ``FOLDER/*.json`` with the results of ``attainment.py``. Prints Markdown: of
promises kept, the mean over the seeds and their standard deviation; behind it answers a second, TTFT and device time
that lay idle while somebody waited. Then where QLM is not ahead.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runs import read_results

from services.simulator.idleness import BY_BOUND

Row = dict[str, Any]
OURS = "qlm"


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the results")
    folder: Path = parser.parse_args().folder
    found = read_results([str(path) for path in sorted(folder.glob("*.json"))])
    results = [(one, result) for one in found for result in one.get("results", [])]
    if not results:
        raise SystemExit(f"{folder}: no results of attainment.py; tables.sh writes them")
    print("\n".join(lines(results)))


def lines(results: Sequence[tuple[Row, Row]]) -> Iterator[str]:
    """Of results, each with what it says of its making."""
    policies = list(dict.fromkeys(row["policy"] for _, result in results for row in result["rows"]))
    for title, cell in (("kept", kept), ("answers/s", answers), ("TTFT p99 (s)", ttft), ("idle while waiting", idle)):
        yield f"| {title} | " + " | ".join(policies) + " |"
        yield "|---" * (1 + len(policies)) + "|"
        for _, result in results:
            for rate, rows in by_rate(result).items():
                cells = [cell([row for row in rows if row["policy"] == policy]) for policy in policies]
                yield f"| {label(result, rate)} | " + " | ".join(cells) + " |"
        yield ""
    behind = [
        line for _, result in results for rate, rows in by_rate(result).items() for line in ahead(result, rate, rows)
    ]
    yield from behind or ["QLM is ahead of each baseline in kept promises everywhere."]
    yield ""
    made = [(one["commit"], ",".join(map(str, one["seeds"]))) for one, _ in results]
    yield from (f"Commit {commit}, seeds {seeds}." for commit, seeds in dict.fromkeys(made))


def by_rate(result: Row) -> dict[float, list[Row]]:
    """Its rows by the rate of arrivals."""
    found: dict[float, list[Row]] = {}
    for row in result["rows"]:
        found.setdefault(row["rate_rps"], []).append(row)
    return found


def label(result: Row, rate: float) -> str:
    """Of a line."""
    devices = " + ".join(f"{count} {kind.upper()}" for kind, count in result["devices"].items())
    name = f"W_{result['workload'][1].upper()}"
    return f"{name}, {devices}, {rate:g}/s, {result['num_requests']:,} requests"


def kept(rows: Sequence[Row]) -> str:
    """Promises: mean and spread."""
    return _spread([row["slo_attainment"] for row in rows])


def answers(rows: Sequence[Row]) -> str:
    """A second."""
    return f"{statistics.mean(row['throughput_rps'] for row in rows):.2f}" if rows else ""


def ttft(rows: Sequence[Row]) -> str:
    """Its 99th percentile."""
    return f"{statistics.mean(row['ttft_p99_s'] for row in rows):.1f}" if rows else ""


def idle(rows: Sequence[Row]) -> str:
    """Share of device time; in round brackets what no bound on batches forbids."""
    if not rows:
        return ""
    usable = statistics.mean(
        sum(share for cause, share in row["idle_while_waiting_by_cause"].items() if cause not in BY_BOUND)
        for row in rows
    )
    return f"{statistics.mean(row['idle_while_waiting_share'] for row in rows):.1%} ({usable:.1%})"


def ahead(result: Row, rate: float, rows: Sequence[Row]) -> list[str]:
    """A line for each baseline that keeps as much as QLM or more: pairs of runs with the same requests."""
    shares: dict[str, dict[int, float]] = {}
    for row in rows:
        shares.setdefault(row["policy"], {})[row["seed"]] = row["slo_attainment"]
    found = []
    for policy, theirs in shares.items():
        if policy.startswith(OURS):
            continue
        differences = [shares[OURS][seed] - share for seed, share in theirs.items() if seed in shares[OURS]]
        if differences and statistics.mean(differences) <= 0.0:
            wins = sum(difference > 0.0 for difference in differences)
            found.append(
                f"- {label(result, rate)}: {policy} keeps {-statistics.mean(differences):.3f} more; QLM is ahead with "
                f"{wins} of {len(differences)} seeds."
            )
    return found


def _spread(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    mean = f"{statistics.mean(shares):.3f}"
    return f"{mean} ± {statistics.stdev(shares):.3f}" if len(shares) > 1 else mean


if __name__ == "__main__":
    main()
