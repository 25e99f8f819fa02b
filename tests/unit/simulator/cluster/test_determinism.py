"""The same inputs give the same cluster, message by message."""

from __future__ import annotations

from services.simulator.cluster.cluster import SimulatedCluster
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import QueueOptions
from shared.messages.message import Message
from shared.messages.requests.payload import Sampling

NUM_REQUESTS = 12


def transcript(seed: int) -> list[tuple[float, str, Message]]:
    """Every message of a short life with two models, two nodes, a death and a return."""
    config = ClusterConfig(
        models=[ModelSpec(name=name, source="none", max_model_len=64) for name in "ab"],
        nodes=[NodeSpec(name="n0"), NodeSpec(name="n1")],
        engine=EngineOptions(block_size=4, kv_cache_bytes=3 << 20, max_num_seqs=3, step_tokens=16),
        queue=QueueOptions(delta=2 / 32),
    )
    cluster = SimulatedCluster(config)
    sent: list[tuple[float, str, Message]] = []
    cluster.bus.listen(lambda now, stream, message: sent.append((now, stream, message)))
    for number in range(NUM_REQUESTS):
        slo = config.slo(["interactive", "batch-2"][number % 2])
        sampling = Sampling(max_tokens=10 + number, seed=seed)
        cluster.gateway.submit(f"r{number}", "ab"[number % 3 % 2], slo, [1, 2, 3], sampling)
        cluster.bus.run_until(cluster.bus.now + 0.3)
    cluster.nodes["n0"].die()
    cluster.bus.run_until(cluster.bus.now + 8)
    cluster.nodes["n0"].start()
    cluster.bus.run_until(60)
    assert cluster.gateway.unfinished == []
    return sent


def test_the_same_inputs_give_the_same_messages() -> None:
    first = transcript(seed=1)
    assert len(first) > 10 * NUM_REQUESTS
    assert transcript(seed=1) == first


def test_other_draws_give_other_messages() -> None:
    assert transcript(seed=2) != transcript(seed=1)
