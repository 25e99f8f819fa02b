"""Nobody starves: under a stream of urgent requests that is more than the node can do, a patient one starts in time.

Why it has to is written down in `services.queue_manager.plans.rescue`.
"""

from __future__ import annotations

from functools import partial

import pytest

from services.queue_manager.plans.planning import WAITING_INTERVAL_S
from services.queue_manager.plans.rescue import OVERDUE_S
from services.simulator.cluster.cluster import SimulatedCluster, searching
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.clients import SloClass
from shared.config.services.gateway import GatewayOptions
from shared.messages.requests.payload import Sampling

PATIENT_S = 40.0
URGENT_S = 5.0
START_S = 5.0
SWAP_S = 5.0  # more than the node needs to finish what runs and to load a model
PLAN_VISITS = 2_000  # the bound holds whatever is planned
BETWEEN_S = 0.4  # two urgent requests; the node needs about 0.5 s for each


def first_token_s(patient_model: str) -> float:
    """When the patient request gets its first token, in seconds from its arrival, with urgent ones around it."""
    config = ClusterConfig(
        models=[ModelSpec(name=name, source="none", max_model_len=64) for name in ("a", "b")],
        nodes=[NodeSpec(name="node-0")],
        slo_classes={"urgent": SloClass(deadline_s=URGENT_S), "patient": SloClass(deadline_s=PATIENT_S)},
        engine=EngineOptions(block_size=4, kv_cache_bytes=3 << 20, max_num_seqs=2, step_tokens=16),
        gateway=GatewayOptions(default_slo="urgent"),
    )
    cluster = SimulatedCluster(config, solve=searching(PLAN_VISITS))
    for number in range(500):
        urgent = partial(submit, cluster, config, f"urgent-{number}", "a", "urgent")
        cluster.bus.at(START_S + number * BETWEEN_S, urgent)
    cluster.bus.at(START_S + 10.0, lambda: submit(cluster, config, "patient", patient_model, "patient"))
    cluster.bus.run_until(START_S + 10.0)
    answer = cluster.gateway.answers["patient"]
    while answer.first_token_s is None:
        assert cluster.bus.step()
        assert cluster.bus.now < START_S + 500 * BETWEEN_S
    unanswered = [name for name, one in cluster.gateway.answers.items() if one.first_token_s is None]
    assert len(unanswered) > 5, "the node could do all of it"
    return answer.first_token_s - answer.sent_s


def submit(cluster: SimulatedCluster, config: ClusterConfig, name: str, model: str, slo: str) -> None:
    cluster.gateway.submit(name, model, config.slo(slo), list(range(7)), Sampling(max_tokens=45, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["a", "b"])
def test_a_patient_request_starts_within_the_bound(model: str) -> None:
    """Also where it needs another model than all the others."""
    assert first_token_s(model) < PATIENT_S + OVERDUE_S + WAITING_INTERVAL_S + SWAP_S
