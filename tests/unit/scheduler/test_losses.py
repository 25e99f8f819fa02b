"""Nodes that are missed, and those that are not."""

from __future__ import annotations

import msgspec

from services.scheduler.core import NODE_TIMEOUT_S, SchedulerCore
from services.scheduler.losses import MAX_REMEMBERED, REMEMBER_S, Losses
from services.scheduler.metrics import measure
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.messages.message import Tick
from shared.messages.nodes.nodes import NodeGone
from tests.samples import samples_of
from tests.unit.scheduler.test_metrics import beat


def lost_and_losses(core: SchedulerCore) -> tuple[float, float]:
    found = samples_of(measure(core))
    return found[("treadle_nodes_lost",)], found[("treadle_node_losses_total",)]


def core_without(*silent: str, config: ClusterConfig | None = None) -> SchedulerCore:
    """Of three nodes, all but ``silent`` are heard on; it is time for the silent to be buried."""
    core = SchedulerCore(config or ClusterConfig())
    for node in ("p-0", "p-1", "p-2"):
        core.handle(beat(node, "a"), 1.0)
    for second in range(1, int(NODE_TIMEOUT_S) + 1):
        for node in ("p-0", "p-1", "p-2"):
            if node not in silent:
                core.handle(beat(node, "a"), 1.0 + second)
    core.handle(Tick(), 1.0 + NODE_TIMEOUT_S)
    return core


def test_a_node_that_falls_silent_is_missed_until_it_is_back() -> None:
    core = core_without("p-1", "p-2")
    assert core.lost() == ["p-1", "p-2"]
    assert core.describe()["lost"] == ["p-1", "p-2"]
    assert lost_and_losses(core) == (2, 2)
    core.handle(beat("p-1", "a"), 7.0)  # of the epoch that is buried: it is fenced first
    assert core.lost() == ["p-1", "p-2"]
    core.handle(msgspec.structs.replace(beat("p-1", "a"), epoch="p-1.2"), 8.0)
    assert lost_and_losses(core) == (1, 2)


def test_who_says_goodbye_is_not_missed() -> None:
    core = SchedulerCore(ClusterConfig())
    core.handle(beat("n0", "a"), 1.0)
    core.handle(NodeGone(node="n0", epoch="n0.1"), 2.0)
    assert lost_and_losses(core) == (0, 0)


def test_one_too_many_of_its_pool_is_not_missed() -> None:
    pool = NodePool(name="p", min_nodes=2, max_nodes=5, start_s=30)
    config = ClusterConfig(pools=[pool], scaling=ScalingOptions(provider="process"))
    core = core_without("p-1", "p-2", config=config)
    assert core.lost() == ["p-1"], "two are wanted: the third had to go"
    assert lost_and_losses(core)[0] == 1


def test_who_stays_away_is_forgotten_though_nobody_speaks() -> None:
    core = core_without("p-2")
    core.handle(NodeGone(node="p-0", epoch="p-0.1"), 7.0)
    core.handle(NodeGone(node="p-1", epoch="p-1.1"), 7.0)
    assert core.wake_at == 1.0 + NODE_TIMEOUT_S + REMEMBER_S
    core.handle(Tick(), core.wake_at)
    assert core.lost() == []
    assert lost_and_losses(core) == (0, 1)


def test_it_survives_a_restart() -> None:
    core, restored = core_without("p-2"), SchedulerCore(ClusterConfig())
    restored.restore(core.snapshot())
    assert restored.lost() == ["p-2"]


def test_of_very_many_the_last_are_remembered() -> None:
    losses = Losses()
    for number in range(MAX_REMEMBERED + 2):
        losses.lose(f"n{number}", float(number))
    assert len(losses.since_s) == MAX_REMEMBERED
    assert next(iter(losses.since_s)) == "n2"
    losses.lose("n2", 5000.0)
    assert list(losses.since_s)[-1] == "n2"
    assert losses.num_lost == MAX_REMEMBERED + 3
