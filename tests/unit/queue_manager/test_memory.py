"""What a request that waits takes in memory, everything counted: it may be one of 400,000."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from services.queue_manager.core import QueueManagerCore
from shared.codec import decode, encode
from shared.config import ClusterConfig
from shared.requests import Submit

NUM_REQUESTS = 4000


def fill(core: QueueManagerCore) -> None:
    config = ClusterConfig()
    kinds = list(config.slo_classes)
    for number in range(NUM_REQUESTS):
        submit = Submit(
            request_id=f"{number:032x}",
            gateway="gateway-0",
            model=f"model-{number % 2}",
            slo=config.slo(kinds[number % len(kinds)]),
            prompt_tokens=100 + number,
            max_tokens=1000,
            tenant=f"tenant-{number % 4}",
        )
        core.handle(decode(encode(submit)), number / 1000)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_queued_request_takes_less_than_a_kilobyte(is_restored: bool) -> None:
    filled = QueueManagerCore(ClusterConfig())
    if is_restored:
        fill(filled)
        snapshot = filled.snapshot()
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
