"""A longer campaign: ``python -m tests.edge --cases 100000 --seed 7 --json``."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.edge.cases import campaign
from tests.edge.server import own_redis, serving


def main() -> None:
    """Ends with what broke a rule, or with what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.edge", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name, own_redis(folder := Path(name)) as redis, serving(folder, redis) as url:
        found = campaign(url, options.cases, options.seed)
    seconds = round(time.monotonic() - began_s, 1)
    if options.json:
        result = {"num_cases": found.num_cases, "seconds": seconds, "statuses": dict(found.statuses)}
        print(json.dumps(result))  # noqa: T201
        return
    for name, number in sorted(found.statuses.items()):
        print(f"{number:7d} {name}")  # noqa: T201
    print(f"{found.num_cases} cases in {seconds} s: nothing found")  # noqa: T201


if __name__ == "__main__":
    main()
