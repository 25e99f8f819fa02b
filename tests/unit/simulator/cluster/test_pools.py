"""Pools in virtual time: nodes that come and go, what is paid for, and the rule that they are compared with."""

from __future__ import annotations

import pytest

from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.pools import NodeLease
from services.simulator.devices.catalogue import cluster_config, device
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.utilization import PERIOD_S, STABILIZATION_S, UtilizationScaler
from services.simulator.workloads.request import WorkloadRequest
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.config.services.queue import QueueOptions
from shared.messages.message import Message
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, Scale

MODEL, DEVICE = "mistral-7b", "a10"
START_S = 20.0
LOAD_S = 4.5  # of this model on this device, from disk
IDLE_S = 30.0


def config(*, provider: str = "process", least: int = 0, most: int = 4) -> ClusterConfig:
    base = cluster_config(["x"], [MODEL], QueueOptions())
    return base.model_copy(
        update={
            "nodes": [],
            "pools": [NodePool(name="p", min_nodes=least, max_nodes=most, start_s=START_S)],
            "scaling": ScalingOptions.model_validate({"provider": provider, "down_cooldown_s": IDLE_S}),
        }
    )


def request(arrival_s: float, slo: str = "interactive") -> WorkloadRequest:
    return WorkloadRequest(arrival_s, MODEL, slo, prompt_tokens=2_000, output_tokens=20)


def run(requests: list[WorkloadRequest], cluster: ClusterConfig, utilization: float | None = None) -> SimulationRun:
    return simulate(Scenario(cluster, {"p": device(DEVICE, [MODEL])}, requests, utilization=utilization))


def lives(found: SimulationRun) -> list[tuple[str, float]]:
    """Nodes in the order in which they were ordered, and when, since the first request."""
    return [(lease.node, round(lease.start_s - found.start_s)) for lease in found.leases]


def test_a_request_that_finds_nobody_waits_for_the_start_and_is_answered() -> None:
    found = run([request(0.0)], config())
    (outcome,) = found.recording.outcomes
    assert outcome.is_answered
    assert outcome.first_token_s is not None
    assert START_S + LOAD_S < outcome.first_token_s - found.start_s < START_S + LOAD_S + 5
    assert [node for node, _ in lives(found)] == ["p-0"]


def test_nobody_asks_for_long_so_the_pool_goes_and_comes_again() -> None:
    found = run([request(0.0), request(300.0)], config())
    assert all(outcome.is_answered for outcome in found.recording.outcomes)
    (first, first_s), (second, second_s) = lives(found)
    assert (first, second) == ("p-0", "p-0")
    assert first_s <= 2
    assert 300 <= second_s <= 302
    end_s = found.leases[0].end_s
    assert end_s is not None
    answered_s = found.recording.outcomes[0].finished_s
    assert answered_s is not None
    assert IDLE_S - 1 < end_s - answered_s < IDLE_S + 1
    assert report(found)["node_hours"] == pytest.approx(found.node_s / 3600, abs=1e-4)
    assert found.node_s < 300


@pytest.mark.slow
def test_a_rush_is_met_with_more_nodes_and_work_that_can_wait_is_not() -> None:
    rush = [request(number * 0.25) for number in range(200)]  # twice what a node can do
    assert 2 <= len({lease.node for lease in run(rush, config(least=1)).leases}) <= 4
    patient = [request(number * 0.25, "batch-2") for number in range(200)]
    assert {lease.node for lease in run(patient, config(least=1)).leases} == {"p-0"}


@pytest.mark.slow
def test_the_same_run_gives_the_same_pools() -> None:
    rush = [request(number * 0.25) for number in range(60)]
    assert run(rush, config()).leases == run(rush, config()).leases


def test_a_lease_is_paid_from_the_order_to_the_end() -> None:
    lease = NodeLease("p-0", 10.0, 30.0)
    assert [lease.seconds(0, 100), lease.seconds(20, 100), lease.seconds(0, 15), lease.seconds(40, 50)] == [
        20,
        10,
        5,
        0,
    ]
    assert NodeLease("p-0", 10.0).seconds(0, 100) == 90


class Scaled:
    """The rule beside nodes that are as busy as the test says."""

    def __init__(self, target: float = 0.5, most: int = 20) -> None:
        self.bus = MemoryBus()
        self.wishes: list[int] = []
        self.bus.subscribe(streams.PROVIDER, self._note)
        UtilizationScaler(self.bus, [NodePool(name="p", max_nodes=most)], target)
        self.bus.run_until(1.0)

    def _note(self, message: Message, _: float) -> None:
        assert isinstance(message, Scale)
        self.wishes.append(message.num_nodes)

    def period(self, *busy: float) -> int:
        """A period in which so many nodes are busy for so much of it; the wish at its end."""
        for number, share in enumerate(busy):
            for beat in range(10):
                self.bus.send(
                    streams.SCHEDULER,
                    Heartbeat(
                        node=f"p-{number}",
                        epoch="1",
                        facts=NodeFacts(device="cpu", swap_s=0.0),
                        model=MODEL,
                        num_blocks=1,
                        num_free_blocks=1,
                        num_running=int(beat < 10 * share),
                        num_waiting=0,
                    ),
                )
        self.bus.run_until(self.bus.now + PERIOD_S)
        return self.wishes[-1]


def test_as_many_as_bring_utilization_to_the_target() -> None:
    scaled = Scaled()
    assert scaled.period(1.0) == 2
    assert scaled.period(1.0, 0.8) == 4
    assert scaled.period(1.0, 0.8) == 4, "those that start count as idle"
    assert scaled.period(0.5, 0.5, 0.5, 0.6) == 4, "within a tenth of the target"


def test_it_grows_by_four_or_twice_at_most_and_not_above_the_limit() -> None:
    scaled = Scaled(target=0.1)
    assert scaled.period(1.0) == 5
    assert scaled.period(*[1.0] * 5) == 10
    assert scaled.period(*[1.0] * 10) == 20
    assert scaled.period(*[1.0] * 20) == 20


def test_it_shrinks_to_the_most_of_five_minutes() -> None:
    scaled = Scaled()
    scaled.period(1.0)
    assert scaled.period(0.8, 0.8) == 4
    num_periods = round(STABILIZATION_S / PERIOD_S)
    idle = [scaled.period(0.0, 0.0, 0.0, 0.0) for _ in range(num_periods)]
    assert idle == [4] * (num_periods - 1) + [1]
