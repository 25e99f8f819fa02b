"""Every transcript in this folder is replayed and must come out as it is written.

``TREADLE_REGENERATE=1 pytest tests/scenarios`` writes them anew and fails; read the diff, each line of it, before you
keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from services.kv_manager.core import KvManagerCore
from services.queue_manager import invariants
from services.queue_manager.core import QueueManagerCore
from services.queue_manager.state.grouping import LEAST_BATCH
from services.scheduler.core import SchedulerCore
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.config.nodes.offload import OffloadOptions
from shared.config.services.clients import SloClass
from shared.config.services.queue import QueueOptions
from shared.service.core import Core
from tests.scenarios.transcript import replay

HERE = Path(__file__).parent
CONFIG = ClusterConfig(
    models=[ModelSpec(name=name, source=f"{name}.gguf") for name in "ab"],  # what the scheduler hands out
    queue=QueueOptions(delta=3 / LEAST_BATCH),  # a group takes three requests
    slo_classes=ClusterConfig().slo_classes | {"strict": SloClass(deadline_s=30, late="refuse")},
)


# the same with a pool of nodes, and nobody else
POOLED = CONFIG.model_copy(
    update={
        "nodes": [],
        "pools": [NodePool(name="p", min_nodes=0, max_nodes=3, start_s=30)],
        "scaling": ScalingOptions(provider="process", up_cooldown_s=5, down_cooldown_s=60),
    }
)


def make_queue_manager() -> QueueManagerCore:
    return QueueManagerCore(CONFIG)


def make_scheduler() -> SchedulerCore:
    return SchedulerCore(CONFIG)


def make_pooled_queue_manager() -> QueueManagerCore:
    return QueueManagerCore(POOLED)


def make_pooled_scheduler() -> SchedulerCore:
    return SchedulerCore(POOLED)


def make_kv_manager() -> KvManagerCore:
    return KvManagerCore(offload=OffloadOptions(hosts=[["hot", "cold"]], ratio=0.5))


def check_queue_manager(core: Core) -> None:
    invariants.check(cast("QueueManagerCore", core).state)


def check_scheduler(core: Core) -> None:
    state = cast("SchedulerCore", core).state
    assert state.nodes.keys() == state.alive.heard_s.keys()


def check_kv_manager(core: Core) -> None:
    """Pages are lent once."""
    leases = cast("KvManagerCore", core).leases.leases.values()
    lent = [(one.link.receiver, page) for one in leases for page in one.pages]
    assert len(lent) == len(set(lent))


SERVICES: dict[str, tuple[Callable[[], Core], Callable[[Core], None]]] = {
    "queue_manager": (make_queue_manager, check_queue_manager),
    "scheduler": (make_scheduler, check_scheduler),
    "kv_manager": (make_kv_manager, check_kv_manager),
    "arrivals": (make_pooled_queue_manager, check_queue_manager),
    "scaling": (make_pooled_scheduler, check_scheduler),
}
TRANSCRIPTS = sorted(str(path.relative_to(HERE)) for path in HERE.glob("*/*.txt"))


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_core_answers_as_written(name: str) -> None:
    path = HERE / name
    make_core, check = SERVICES[path.parent.name]
    answered = replay(path.read_text(), make_core, check, always_restore=False)
    if os.environ.get("TREADLE_REGENERATE") and answered != path.read_text():
        path.write_text(answered)
        pytest.fail(f"{name} was written anew: read the diff")
    assert answered == path.read_text()


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_core_restored_after_every_input_answers_the_same(name: str) -> None:
    path = HERE / name
    make_core, check = SERVICES[path.parent.name]
    assert replay(path.read_text(), make_core, check, always_restore=True) == path.read_text()
