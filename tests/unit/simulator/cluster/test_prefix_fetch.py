"""Simulated nodes read each other's caches: what that takes, what comes of it, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.agent.decisions.actions import FetchPrefix, PrefixFetched, StopFetch
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Command, ImageFile, ReleaseImages
from gpu_node.engine.requests.image import HandedOver
from services.simulator.cluster.cluster import stepped
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node_images import LATENCY_S, NodeHooks, NodeImages
from services.simulator.cluster.node_prefixes import NodePrefixes, PrefixCounts
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import OperationOptions, QueueOptions, TenantSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt

NETWORK = 1e6
WITHIN_S = 1.5
SIZE = 500_000
"""Bytes of what is fetched by hand: half a second."""


class Node:
    """One end, without agent and engine: it notes what they would hear."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self.told: list[Command] = []
        self.fed: list[tuple[float, object]] = []
        hooks = NodeHooks(
            lambda event: None,
            self.told.append,
            lambda event: self.fed.append((bus.now, event)),
            lambda time_s, action: bus.at(time_s, action),
        )
        self.images = NodeImages(bus, name, f"{name}-1", hooks, NETWORK)
        self.counts = PrefixCounts()
        self.prefixes = NodePrefixes(KvDoor(name, f"{name}-1"), bus, self.images, hooks, self.counts)

    def answer(self, number: int, num_bytes: int = SIZE) -> None:
        """Its engine has copied what is asked for; nothing where there are no bytes."""
        if num_bytes:
            self.images.give([HandedOver("r", 0, 7, (b"kv",), num_bytes)], lambda image, file: PrefixCopied(1, 7, file))
        file = ImageFile("7", num_bytes) if num_bytes else NO_IMAGE
        self.prefixes.hear(PrefixCopied(number, 7, file))


PAYLOAD = Payload("r", 0, "gw", "m", [1, 2, 3], Sampling(max_tokens=1))


def wanted(token: str = "giver-1", giver: str = "giver") -> FetchPrefix:
    return FetchPrefix(PAYLOAD, PrefixSource(giver, KvDoor(giver, token), 200, "f", WITHIN_S), 0)


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def giver(bus: MemoryBus) -> Node:
    return Node(bus, "giver")


@pytest.fixture
def taker(bus: MemoryBus) -> Node:
    return Node(bus, "taker")


def test_it_takes_the_question_and_its_bytes(bus: MemoryBus, giver: Node, taker: Node) -> None:
    taker.prefixes.do(wanted())
    bus.run_until(0.1)
    (asked,) = giver.told
    assert isinstance(asked, CopyPrefix)
    assert asked.ask.token_ids == PAYLOAD.prompt_token_ids
    giver.answer(asked.number)
    bus.run_until(2.0)
    file = ImageFile("giver-1-7", SIZE)
    took_s = LATENCY_S + SIZE / NETWORK
    ((at_s, fed),) = taker.fed
    assert fed == PrefixFetched(PAYLOAD, file, took_s)
    assert at_s == pytest.approx(0.1 + took_s)
    assert taker.images.take(file) == b"kv"
    assert giver.told[1:] == [ReleaseImages([7])]
    assert taker.counts == PrefixCounts(num_fetched=1, num_bytes=SIZE)


def test_what_is_gone_comes_at_once_as_nothing(bus: MemoryBus, giver: Node, taker: Node) -> None:
    taker.prefixes.do(wanted())
    bus.run_until(0.1)
    giver.answer(1, 0)
    assert taker.fed == [(0.1, PrefixFetched(PAYLOAD, NO_IMAGE, 0.0))]
    assert taker.counts == PrefixCounts(num_failed=1)


@pytest.mark.parametrize("reason", ["another epoch", "nobody there"])
def test_who_cannot_ask_computes(bus: MemoryBus, giver: Node, taker: Node, reason: str) -> None:
    taker.prefixes.do(wanted("old") if reason == "another epoch" else wanted(giver="lost"))
    bus.run_until(0.1)
    assert taker.fed == [(LATENCY_S, PrefixFetched(PAYLOAD, NO_IMAGE, 0.0))]
    assert giver.told == []


def test_nothing_is_waited_for_longer_than_it_is_worth(bus: MemoryBus, giver: Node, taker: Node) -> None:
    """The giver dies behind the question; what would be half there by then does not come either."""
    taker.prefixes.do(wanted())
    bus.run_until(0.1)
    giver.prefixes.close()
    bus.run_until(5.0)
    assert taker.fed == [(WITHIN_S, PrefixFetched(PAYLOAD, NO_IMAGE, 0.0))]


def test_a_copy_that_comes_too_late_is_dropped(bus: MemoryBus, giver: Node, taker: Node) -> None:
    taker.prefixes.do(wanted())
    bus.run_until(1.4)
    giver.answer(1)
    bus.run_until(20.0)
    assert taker.fed == [(WITHIN_S, PrefixFetched(PAYLOAD, NO_IMAGE, 0.0))]
    assert giver.told[1:] == [ReleaseImages([7])], "its memory is free after a while"


def test_whoever_is_given_up_hears_nothing(bus: MemoryBus, giver: Node, taker: Node) -> None:
    taker.prefixes.do(wanted())
    bus.run_until(0.1)
    taker.prefixes.do(StopFetch([Attempt("r", 0)]))
    giver.answer(1)
    bus.run_until(20.0)
    assert taker.fed == []
    assert taker.counts == PrefixCounts()


# --- a cluster --------------------------------------------------------------------------------------------------------

COST = StepCost(step_s=0.01, token_s=1e-3, context_token_s=1e-8)
MODEL = ModelOnDevice(COST, 1 << 10, kv_cache_bytes=1 << 24, disk_load_s=1.0, host_load_s=0.1)
DEVICES = {f"n{number}": SimulatedDevice("d", {"m": MODEL}, kv_bytes_per_s=1e9) for number in range(2)}
HISTORY_TOKENS = 1_536


def scenario(*, fetches: bool | None, begins_alike: bool = True) -> Scenario:
    """One user's prompt is computed somewhere. Then three come at once with it, two of whom find no place there."""
    config = ClusterConfig(
        models=[ModelSpec(name="m", source="simulated", max_model_len=4096)],
        nodes=[NodeSpec(name=name) for name in DEVICES],
        queue=QueueOptions(operations=OperationOptions(fetch=fetches)),
        engine=EngineOptions(block_size=64, max_num_seqs=1, step_tokens=256),
    )
    times_s = (0.0, 20.0, 20.01, 20.02)
    requests = [
        WorkloadRequest(time_s, "m", "interactive", HISTORY_TOKENS + 100, 32, hash_ids=(0, 1, 2, 10 + number))
        for number, time_s in enumerate(times_s)
    ]
    if not begins_alike:
        requests = [replace(one, hash_ids=()) for one in requests]
    return Scenario(config, DEVICES, requests, make_engine=stepped)


def computed_tokens(run: SimulationRun) -> int:
    counts = sum((node.counts for node in run.nodes), Counts())
    return counts.first_queried_tokens - counts.first_cached_tokens


def test_what_one_node_has_another_reads() -> None:
    """A history of 1,536 tokens is computed once, and the 100 behind it by each; without fetches, twice."""
    plain, fetching = (simulate(scenario(fetches=one)) for one in (False, None))
    prefixes = [node.prefixes for node in fetching.nodes]
    assert sum(one.num_fetched for one in prefixes) == 1
    assert sum(one.num_tokens for one in prefixes) == HISTORY_TOKENS
    assert sum(one.num_bytes for one in prefixes) == HISTORY_TOKENS * MODEL.kv_token_bytes
    assert computed_tokens(fetching) == HISTORY_TOKENS + 4 * 100
    assert computed_tokens(plain) == 2 * HISTORY_TOKENS + 4 * 100
    assert [node.prefixes for node in plain.nodes] == [PrefixCounts()] * 2
    assert all(outcome.is_answered for outcome in fetching.recording.outcomes)
    assert fetching.end_s < plain.end_s


@pytest.mark.parametrize("cache", ["shared", "own"])
def test_tenants_with_their_own_caches_read_nothing_of_each_other(cache: str) -> None:
    """The history is computed once for all, or once for each of two tenants; nothing else is in it."""
    shared = scenario(fetches=None)
    tenants = {name: TenantSpec.model_validate({"cache": cache}) for name in ("acme", "bolt")}
    requests = [
        replace(one, tenant=("acme", "bolt")[number % 2], arrival_s=20.0 * number)
        for number, one in enumerate(shared.requests)
    ]
    config = shared.config.model_copy(update={"tenants": tenants})
    run = simulate(replace(shared, config=config, requests=requests))
    assert all(outcome.is_answered for outcome in run.recording.outcomes)
    assert computed_tokens(run) == (2 if cache == "own" else 1) * HISTORY_TOKENS + 4 * 100


def test_prompts_that_nobody_else_has_run_as_without() -> None:
    with_, without = (simulate(scenario(fetches=one, begins_alike=False)) for one in (True, False))
    assert with_.recording.outcomes == without.recording.outcomes
    assert with_.end_s == without.end_s
