"""The row of `treadle bench conversations` for two nodes: requests sent to their histories, and blindly.

Two nodes that are predicted, in virtual time, with the live services: the same options give the same row. Host memory
of both together has room for those who are there, once and a fifth.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from services.simulator.cluster.cluster import stepped
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.reports.report import DECIMALS, report
from services.simulator.simulation import Progress, Scenario, simulate
from services.simulator.workloads.conversations import ReturningUsers
from services.simulator.workloads.request import WorkloadRequest
from shared.config.engines.tiers import TierOptions
from shared.config.hardware import model_named
from shared.config.services.queue import OperationOptions, QueueOptions

DEVICE, MODEL, SLO = "a10", "llama-3.1-8b", "interactive"
NUM_NODES = 2
MAX_MODEL_LEN = 5_632
HOST_SHARE = 1.2
TURNS_PER_S = 1.6
"""Of all users: what two nodes can do if they find what was said."""
NUM_TURNS = 10
NUM_ROUTINGS = 2


@dataclass(frozen=True, slots=True)
class RoutingRow:
    """What became of the same requests with and without the KV manager's index."""

    num_requests: int
    hit_rate: dict[str, dict[str, float]]
    """Of prompt tokens: by routing, then by tier."""
    promises_kept: dict[str, float]
    ttft_p50_s: dict[str, float]

    @property
    def hits_vs_blind(self) -> float:
        """How many times as many tokens of prompts are found."""
        return self.hit_rate["warm"]["all"] / self.hit_rate["blind"]["all"]


def routing_row(num_users: int, progress: Progress) -> RoutingRow:
    """`NUM_ROUTINGS` simulations; ``progress`` hears how many requests of all are over."""
    users = ReturningUsers(num_users, NUM_TURNS, TURNS_PER_S)
    requests = users.draw(MODEL, SLO, Random(0))  # noqa: S311 - a workload is no secret
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(("warm", "blind")):
        before = number * len(requests)
        scenario = _scenario(users, requests, is_warm=name == "warm")
        found[name] = report(simulate(scenario, lambda over, before=before: progress(before + over)))  # type: ignore[misc]
    return RoutingRow(
        num_requests=len(requests),
        hit_rate={name: one["prompt_tokens_found"] for name, one in found.items()},
        promises_kept={name: one["slo_attainment"] for name, one in found.items()},
        ttft_p50_s={name: round(one["ttft_p50_s"], DECIMALS) for name, one in found.items()},
    )


def _scenario(users: ReturningUsers, requests: list[WorkloadRequest], *, is_warm: bool) -> Scenario:
    active_bytes = users.active_tokens * model_named(MODEL).kv_token_bytes // NUM_NODES
    nodes = devices_of({DEVICE: NUM_NODES}, [MODEL], max_model_lens={MODEL: MAX_MODEL_LEN})
    queue = QueueOptions(operations=OperationOptions(warm=is_warm))
    lens, tiers = {MODEL: MAX_MODEL_LEN}, TierOptions(host_bytes=int(HOST_SHARE * active_bytes))
    config = cluster_config(list(nodes), [MODEL], queue, max_model_lens=lens, tiers=tiers)
    return Scenario(config, nodes, requests, make_engine=stepped)
