"""Runs schedules: `python -m tests.schedules --seeds 1000000 --json`; `--replay SEED` tells what happened in one."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import cast

from tests.schedules.cluster import Cluster
from tests.schedules.fetches import schedule_setup
from tests.schedules.judge import Looks
from tests.schedules.schedule import run
from tests.schedules.setup import ALL_KINDS, Kind
from tests.schedules.tally import Tally, tally
from tests.schedules.transcript import Transcript, word

SEEDS_A_TASK = 200
BAR_CHARS = 40


def main() -> int:
    """Exit status 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--kinds", nargs="+", choices=sorted(set(ALL_KINDS)), default=ALL_KINDS, help="of faults")
    parser.add_argument("--fetches", action="store_true", help="nodes read each other's caches in all, not in some")
    parser.add_argument("--json", action="store_true", help="print the report as one line")
    parser.add_argument("--replay", type=int, metavar="SEED", help="tell what happens in one schedule")
    options = parser.parse_args()
    kinds = cast("tuple[Kind, ...]", tuple(options.kinds))
    if options.replay is not None:
        return replay(options.replay, kinds, all_fetch=options.fetches)
    began_s = time.monotonic()
    sums = run_all(range(options.first, options.first + options.seeds), options.jobs, kinds, all_fetch=options.fetches)
    report = sums.report() | {"seconds": round(time.monotonic() - began_s, 1)}
    say(json.dumps(report, indent=None if options.json else 2))
    further = kinds_option(kinds) + (" --fetches" if options.fetches else "")
    for seed in sorted(sums.failed):
        say(f"replay with: python -m tests.schedules --replay {seed}{further}", to_errors=True)
    return 1 if sums.failed else 0


def run_all(seeds: range, num_jobs: int, kinds: tuple[Kind, ...], *, all_fetch: bool) -> Tally:
    """In so many processes, with a bar."""
    sums = Tally()
    tasks = [seeds[begin : begin + SEEDS_A_TASK] for begin in range(0, len(seeds), SEEDS_A_TASK)]
    with ProcessPoolExecutor(num_jobs, initializer=gc.disable) as pool:
        for done in as_completed([pool.submit(tally_task, task, kinds, all_fetch=all_fetch) for task in tasks]):
            part = done.result()
            for seed, what in part.failed.items():
                say(f"\rseed {seed}: {what}", to_errors=True)
            sums.add(part)
            show(sums.num_schedules, len(seeds), len(sums.failed))
    return sums


def tally_task(seeds: range, kinds: tuple[Kind, ...], *, all_fetch: bool) -> Tally:
    """`tally`, with one collection of cycles behind it: collecting while it runs takes a quarter of the time."""
    try:
        return tally(seeds, kinds, all_fetch=all_fetch)
    finally:
        gc.collect()


def show(num_done: int, num_all: int, num_failed: int) -> None:
    """The bar, where somebody looks."""
    if sys.stderr.isatty():
        full = BAR_CHARS * num_done // num_all
        bar = "#" * full + "." * (BAR_CHARS - full)
        sys.stderr.write(f"\r[{bar}] {num_done}/{num_all}, {num_failed} failed" + "\n" * (num_done == num_all))


def replay(seed: int, kinds: tuple[Kind, ...], *, all_fetch: bool) -> int:
    """Setup, transcript, judgement."""
    transcript = Transcript(is_kept=True)
    setup = schedule_setup(seed, kinds, all_fetch=all_fetch)
    cluster = Cluster(setup, transcript=transcript, look=Looks())
    try:
        judgement, status = word(run(cluster)), 0
    except Exception:
        judgement, status = traceback.format_exc(), 1
    say("\n".join([word(setup), *transcript.lines, judgement]))
    return status


def kinds_option(kinds: tuple[Kind, ...]) -> str:
    """What a replay has to be told beside the seed."""
    return "" if kinds == ALL_KINDS else " --kinds " + " ".join(f"'{kind}'" for kind in kinds)


def say(text: str, *, to_errors: bool = False) -> None:
    """A line."""
    (sys.stderr if to_errors else sys.stdout).write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
