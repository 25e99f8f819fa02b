"""`python -m tests.schedules --seeds 1000000 --first 0 --json`, or `--replay SEED` for what happened in one."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.schedules.cluster import Cluster
from tests.schedules.judge import Looks
from tests.schedules.schedule import run
from tests.schedules.setup import ALL_KINDS, Kind, drawn_setup
from tests.schedules.transcript import Transcript


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--kinds", nargs="*", default=None)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = tuple(options.kinds) if options.kinds is not None else ALL_KINDS
    if options.replay is not None:
        return replay(options.replay, kinds)
    began = time.process_time()
    ends, faults, failed, slowest = Counter(), Counter(), {}, 0.0
    for seed in range(options.first, options.first + options.seeds):
        setup = drawn_setup(seed, kinds)
        try:
            outcome = run(Cluster(setup, transcript=Transcript(is_kept=False), look=Looks()))
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"
            print(seed, failed[seed][:400], flush=True)
            continue
        ends.update(outcome.ends.values())
        faults.update(fault.kind for fault in setup.faults)
        slowest = max(slowest, outcome.agreed_s)
    print(dict(ends), dict(faults), len(failed), "failed", slowest, (time.process_time() - began) / options.seeds)
    return 0


def replay(seed: int, kinds: tuple[Kind, ...]) -> int:
    transcript = Transcript(is_kept=True)
    setup = drawn_setup(seed, kinds)
    print(setup)
    try:
        outcome = run(Cluster(setup, transcript=transcript, look=Looks()))
    except Exception:
        print("\n".join(transcript.lines))
        traceback.print_exc()
        return 1
    print("\n".join(transcript.lines))
    print(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
