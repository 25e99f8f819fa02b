"""One node, several models that take long to load: what is loaded is served before the next load begins."""

from __future__ import annotations

from functools import partial

import pytest

from services.simulator.cluster.cluster import SimulatedCluster
from services.simulator.cluster.engine_process import Loading
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Sampling

MODELS = "abc"
LOAD_S = 4.0
READY_S = 5.0  # the node has the first model by then
NUM_REQUESTS = 12
SERVED_S = 100.0

ON_DEVICE = ModelOnDevice(StepCost(0.02, 0.0, 0.0), 23_040, 3 << 20, disk_load_s=LOAD_S, host_load_s=LOAD_S)


def make_cluster(solve_s: float) -> SimulatedCluster:
    """A request a group, so that plans order each; a plan comes so long after it was asked for."""
    config = ClusterConfig(
        models=[ModelSpec(name=name, source="none", max_model_len=64) for name in MODELS],
        nodes=[NodeSpec(name="n0")],
        engine=EngineOptions(block_size=4, kv_cache_bytes=3 << 20, max_num_seqs=3, step_tokens=16),
        queue=QueueOptions(delta=1 / 32),
    )
    device = SimulatedDevice("d", dict.fromkeys(MODELS, ON_DEVICE), kv_bytes_per_s=10e9)
    return SimulatedCluster(config, {"n0": device}, solve_s=lambda _: solve_s)


def submit(cluster: SimulatedCluster, number: int) -> None:
    slo = ClusterConfig().slo("batch-2")
    name = f"{MODELS[number % len(MODELS)]}{number}"
    cluster.gateway.submit(name, name[0], slo, list(range(7)), Sampling(max_tokens=20, seed=1))


def served(cluster: SimulatedCluster, loads: list[Loading]) -> list[list[str]]:
    """For each load the models of the first tokens between its end and the begin of the next."""
    begins = [*(one.start_s for one in loads[1:]), cluster.bus.now]
    firsts = {name: answer.first_token_s or 0.0 for name, answer in cluster.gateway.answers.items()}
    return [
        sorted({name[0] for name, first_s in firsts.items() if one.end_s <= first_s <= begin_s})
        for one, begin_s in zip(loads, begins, strict=True)
    ]


@pytest.mark.parametrize("between_s", [0.7, 2.0])
@pytest.mark.parametrize("solve_s", [0.005, 0.5])
def test_no_model_is_loaded_in_vain(between_s: float, solve_s: float) -> None:
    """Requests of all models come while the node loads, and each brings a plan."""
    cluster = make_cluster(solve_s)
    for number in range(NUM_REQUESTS):
        cluster.bus.at(READY_S + number * between_s, partial(submit, cluster, number))
    cluster.bus.run_until(SERVED_S)
    assert cluster.gateway.unfinished == []
    loads = cluster.nodes["n0"].loadings
    assert len(loads) >= len(MODELS)
    assert served(cluster, loads) == [[one.model] for one in loads]
