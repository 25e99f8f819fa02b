"""Schedules of faults in clusters whose nodes prefill or decode: no token changes, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.messages.nodes.nodes import PhaseOption
from tests.schedules.cluster import Cluster
from tests.schedules.judge import Looks
from tests.schedules.schedule import run
from tests.schedules.setup import drawn_setup
from tests.schedules.transcript import Transcript

pytestmark = pytest.mark.slow

SEEDS_A_TEST = 100
CLUSTERS: list[tuple[PhaseOption, ...]] = [
    ("prefill", "decode"),
    ("prefill", "decode", "both"),
    ("prefill", "prefill", "decode"),
]

FOLLOWING: list[tuple[PhaseOption, ...]] = [("auto", "auto"), ("auto", "auto", "auto"), ("auto", "prefill", "decode")]


def made(seed: int, phases: tuple[PhaseOption, ...], *, reads_ahead: bool = False) -> Cluster:
    setup = replace(drawn_setup(seed), num_nodes=len(phases), phases=phases, reads_ahead=reads_ahead)
    return Cluster(setup, transcript=Transcript(is_kept=False), look=Looks())


@pytest.mark.parametrize("first", range(0, 300, SEEDS_A_TEST))
@pytest.mark.parametrize("phases", CLUSTERS, ids="-".join)
def test_promises_are_kept_whatever_fails(phases: tuple[PhaseOption, ...], first: int) -> None:
    num_moved = num_changed = 0
    for seed in range(first, first + SEEDS_A_TEST):
        cluster = made(seed, phases)
        run(cluster)
        num_moved += cluster.nodes[0].world.images.num_held
        decoding = cluster.nodes[phases.index("decode")]
        num_changed += decoding.is_alive and decoding.engine.model == "b"
    assert num_moved > SEEDS_A_TEST // 5, "some went on elsewhere"
    assert num_changed > SEEDS_A_TEST // 10, "some had another model loaded to go on with"


@pytest.mark.parametrize("phases", CLUSTERS, ids="-".join)
def test_promises_are_kept_where_kv_is_read_while_prompts_are_computed(phases: tuple[PhaseOption, ...]) -> None:
    num_ahead = num_moved = 0
    for seed in range(SEEDS_A_TEST):
        cluster = made(seed, phases, reads_ahead=True)
        run(cluster)
        images = cluster.nodes[0].world.images
        num_ahead, num_moved = num_ahead + images.num_ahead, num_moved + images.num_held
        assert images.growing == {}, "whatever is read and goes nowhere has ended"
    assert num_ahead > SEEDS_A_TEST // 5, "some were read ahead"
    assert num_moved > SEEDS_A_TEST // 5, "and some went on elsewhere"


@pytest.mark.parametrize("phases", FOLLOWING, ids="-".join)
def test_promises_are_kept_where_nodes_change_their_phases(phases: tuple[PhaseOption, ...]) -> None:
    num_moved = num_turned = 0
    for seed in range(SEEDS_A_TEST):
        cluster = made(seed, phases)
        run(cluster)
        num_moved += cluster.nodes[0].world.images.num_held
        num_turned += sum(node.core.heartbeat().facts.phases != "both" for node in cluster.nodes if node.is_alive)
    assert num_moved > SEEDS_A_TEST // 5, "some went on elsewhere"
    assert num_turned > SEEDS_A_TEST // 5, "some nodes serve one phase in the end"
