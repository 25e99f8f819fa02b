"""What a request takes in memory, everything counted: it may be one of 400,000, or one of few in a small group."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest

from services.queue_manager.core import QueueManagerCore
from shared.config.config import ClusterConfig
from shared.messages.codec import decode, encode
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Submit

pytestmark = pytest.mark.slow

NUM_REQUESTS = 1000  # the fewer there are, the fewer share a group
NUM_NODES = 16
NUM_MODELS = 4
NUM_TENANTS = 8


def fill(core: QueueManagerCore) -> None:
    """Nodes run what they can, so that groups are many."""
    config = ClusterConfig()
    kinds = list(config.slo_classes)
    draw = random.Random(0)
    for number in range(NUM_NODES):
        model = f"model-{number % NUM_MODELS}"
        rate = ModelRate(model, StepCost(0.02, 5e-5, 1e-8), kv_tokens=200_000, kv_token_bytes=131_072, load_s=5.0)
        up = NodeUp(epoch="1", known=NodeState(f"node-{number}", model, max_num_seqs=256, rates=[rate]))
        core.handle(decode(encode(up)), 0.0)
    for number in range(NUM_REQUESTS):
        submit = Submit(
            request_id=f"{number:032x}",
            gateway="gateway-0",
            model=f"model-{draw.randrange(NUM_MODELS)}",
            slo=config.slo(draw.choice(kinds)),
            prompt_tokens=1 + int(draw.lognormvariate(5, 1.2)),
            max_tokens=1000,
            tenant=f"tenant-{draw.randrange(NUM_TENANTS)}",
        )
        core.handle(decode(encode(submit)), number / 1000)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_request_takes_less_than_a_kilobyte(is_restored: bool) -> None:
    filled = QueueManagerCore(ClusterConfig())
    if is_restored:
        fill(filled)
        snapshot = filled.snapshot()
        QueueManagerCore(ClusterConfig()).restore(snapshot)  # what is made once for a process is no request's
    core = QueueManagerCore(ClusterConfig())
    gc.collect()
    tracemalloc.start()
    if is_restored:
        core.restore(snapshot)
    else:
        fill(core)
    gc.collect()
    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(core.state.requests) == NUM_REQUESTS
    assert num_bytes / NUM_REQUESTS < 1000
