"""Users who come back in a simulated cluster are sent to where their histories are, in whatever tier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.engine.measures.counts import Counts
from services.simulator.cluster.cluster import SimulatedCluster, fast, stepped
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from services.simulator.fast.plain import FastEngineError
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import TierOptions
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.messages.nodes.step_cost import StepCost

BLOCK_TOKENS = 64
TURN_TOKENS = 512
NUM_USERS = 6
NUM_TURNS = 3
TOKEN_BYTES = 1 << 10
COST = StepCost(step_s=0.01, token_s=1e-4, context_token_s=1e-8)
MODEL = ModelOnDevice(COST, TOKEN_BYTES, kv_cache_bytes=4 * 2048 * TOKEN_BYTES, disk_load_s=1.0, host_load_s=0.1)
DEVICES = {f"n{number}": SimulatedDevice("d", {"m": MODEL}, kv_bytes_per_s=1e9) for number in range(2)}
USER_BYTES = NUM_TURNS * TURN_TOKENS * TOKEN_BYTES


def scenario(*, warm: bool, tiers: TierOptions | None = None) -> Scenario:
    """At first all come at once, and share the nodes; later one after the other, each when nobody else is there."""
    config = ClusterConfig(
        models=[ModelSpec(name="m", source="simulated", max_model_len=2048)],
        nodes=[NodeSpec(name=name) for name in DEVICES],
        queue=QueueOptions(operations=OperationOptions(warm=warm)),
        engine=EngineOptions(block_size=BLOCK_TOKENS, max_num_seqs=4, step_tokens=256, tiers=tiers or TierOptions()),
    )
    requests = []
    for turn in range(NUM_TURNS):
        for user in range(NUM_USERS):
            arrival_s = 20.0 * turn + (1.0 * user if turn else 0.0)
            hash_ids = tuple(100 * user + part for part in range(turn + 1))
            num_tokens = TURN_TOKENS * (turn + 1)
            requests.append(WorkloadRequest(arrival_s, "m", "interactive", num_tokens, 8, hash_ids=hash_ids))
    return Scenario(config, DEVICES, requests, make_engine=stepped)


def found_tokens(run: SimulationRun) -> int:
    return sum((node.counts for node in run.nodes), Counts()).first_cached_tokens


def test_warm_routing_finds_what_blind_routing_computes_again() -> None:
    """Of the 512 tokens of a second turn's beginning, and the 1,024 of a third's: all blocks."""
    warm, blind = (simulate(scenario(warm=one)) for one in (True, False))
    assert found_tokens(warm) == NUM_USERS * (512 + 1024)
    assert found_tokens(blind) <= found_tokens(warm) - NUM_USERS // 2 * 512, "half of them come back to the other node"
    assert all(outcome.is_answered for outcome in warm.recording.outcomes)


def test_tiers_find_what_the_device_has_given_up() -> None:
    """The device of each node has room for one user, its host memory for two, its SSD for all."""
    few = replace(MODEL, kv_cache_bytes=2048 * TOKEN_BYTES)
    small = {name: replace(device, models={"m": few}) for name, device in DEVICES.items()}
    tiers = TierOptions(host_bytes=2 * USER_BYTES, ssd_bytes=32 << 20, ssd_folder="simulated")
    runs = [simulate(replace(scenario(warm=True, tiers=one), devices=small)) for one in (TierOptions(), tiers)]
    without, with_tiers = (sum((node.counts for node in run.nodes), Counts()) for run in runs)
    assert without.first_cached_tokens < with_tiers.first_cached_tokens
    assert with_tiers.kept.store_tokens > 0
    assert with_tiers.kept.host_tokens > 0


def test_the_fast_engine_refuses_contents_by_name() -> None:
    with pytest.raises(FastEngineError, match="prompts that begin alike"):
        simulate(replace(scenario(warm=True), make_engine=fast))


def test_a_cluster_without_contents_names_no_prompts() -> None:
    assert SimulatedCluster(scenario(warm=True).config, DEVICES).block_tokens == 0
