"""What a tenant that asks for 100 times its share does to another one, and how tokens are divided by weight.

    python benchmarks/greedy_tenant.py --json > greedy.json
    python benchmarks/greedy_tenant.py --only simulated --json

Two tenants of equal weight. The modest one asks for a third of its share; its times to first token and end to end are
measured alone, beside a tenant that asks for its share, and beside one that asks for 100 times as much, as far as a
gateway's slots let it. Then two tenants with weights 1 and 3 want more than there is.

Simulated that is done with ShareGPT's lengths, and with those of the live half (``as_live``), which tells what of the
live figures is the node's and the queue's. Live there are a real gateway, Redis, queue manager, scheduler and a
predicted node (`treadle up`); a part of the greedy tenant's bodies are large, its clients have a process of their own,
and cases take turns. What the gateway's log says of the same requests tells how much of a first token's time lies
behind the gateway.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from greedy_live import live
from greedy_simulated import simulated, simulated_as_live, simulated_weights
from greedy_times import GOAL, TIMES

SECONDS, ROUNDS = 80.0, 3  # so that each live case has 1,200 requests


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("simulated", "live"), help="half of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a live case in a round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in which the live cases take turns")
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    args = parser.parse_args()
    result: dict[str, Any] = {"goal": GOAL, "times": TIMES}
    if args.only != "live":
        result["simulated"] = {f"greedy_{slo}": simulated(slo, args.seed) for slo in ("interactive", "batch-1")} | {
            "as_live": simulated_as_live(),
            "weights_1_3": simulated_weights(args.seed),
        }
    if args.only != "simulated":
        result["live"] = live(args.seconds, args.rounds)
    print(json.dumps(result) if args.json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
