"""Users who come back to simulated nodes, with and without fetches of what other nodes have cached of their prompts.

A row for each rate, seed and network; without fetches, the network carries nothing. Deterministic; a JSON object a row.

    python benchmarks/prefix_fetch_simulated.py --devices a100=4 --rates 60 80 --seeds 2
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from services.simulator.cluster.cluster import stepped
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.devices.device import SimulatedDevice
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, simulate
from services.simulator.workloads.conversations import ReturningUsers
from shared.config.hardware import model_named
from shared.config.services.queue import OperationOptions, QueueOptions

BLOCK_TOKENS = 64
STEP_TOKENS = 2_048
FIELDS = (
    "slo_attainment", "ttft_p50_s", "ttft_p99_s", "e2e_p50_s", "prompt_tokens_computed", "prefixes_fetched",
    "prefixes_not_fetched", "prefix_tokens_fetched", "prefix_bytes_fetched", "device_utilisation", "makespan_s",
)  # fmt: skip


def row(
    users: ReturningUsers, model: str, devices: Mapping[str, SimulatedDevice], seed: int, *, fetches: bool
) -> dict[str, Any]:
    """One simulation."""
    queue = QueueOptions(operations=OperationOptions(fetch=fetches))
    lens = {model: model_named(model).context_tokens}
    config = cluster_config(list(devices), [model], queue, max_model_lens=lens)
    engine = replace(config.engine, block_size=BLOCK_TOKENS, step_tokens=STEP_TOKENS)
    config = config.model_copy(update={"engine": engine})
    requests = users.draw(model, "interactive", Random(seed))
    found = report(simulate(Scenario(config, devices, requests, make_engine=stepped)))
    return {name: found[name] for name in FIELDS}


def main() -> None:
    """Parse, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-7b")
    parser.add_argument("--devices", default="a100=4")
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rates", type=float, nargs="+", default=[60.0, 80.0], help="turns a second")
    parser.add_argument("--networks", type=float, nargs="+", default=[1.25e9, 12.5e9], help="bytes a second to a node")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    kind, _, number = options.devices.partition("=")
    lens = {options.model: model_named(options.model).context_tokens}
    plain = devices_of({kind: int(number)}, [options.model], max_model_lens=lens)
    for rate in options.rates:
        users = ReturningUsers(options.users, options.turns, rate)
        for seed in range(options.seeds):
            said = {"model": options.model, "devices": options.devices, "turns_per_s": rate, "seed": seed}
            found = row(users, options.model, plain, seed, fetches=False)
            print(json.dumps(said | {"network_bytes_per_s": None} | found), flush=True)
            for network in options.networks:
                devices = {name: replace(one, network_bytes_per_s=network) for name, one in plain.items()}
                found = row(users, options.model, devices, seed, fetches=True)
                print(json.dumps(said | {"network_bytes_per_s": network} | found), flush=True)


if __name__ == "__main__":
    main()
