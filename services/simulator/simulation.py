"""A workload on a simulated cluster, from the first request to the last answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu_node.engine.measures.counts import Counts
from services.queue_manager.core import QueueManagerCore
from services.simulator.cluster.clients import ClientOutcome
from services.simulator.cluster.cluster import MakeEngine, SimulatedCluster, fast, searching
from services.simulator.cluster.engine_process import Loading
from services.simulator.cluster.memory_bus import Listener
from services.simulator.cluster.node import SimulatedNode
from services.simulator.cluster.node_prefixes import PrefixCounts
from services.simulator.cluster.pools import NodeLease
from services.simulator.devices.device import SimulatedDevice
from services.simulator.fast.plain import FastEngineError
from services.simulator.idleness import Cause, IdleWatch
from services.simulator.recording import MAX_PREDICTIONS, Recording
from services.simulator.traffic import Traffic
from services.simulator.utilization import UtilizationScaler
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from shared.config.config import ClusterConfig
from shared.messages.requests.payload import Sampling

WARM_UP_S = 60.0  # before the first request, so that every node has a model
STALL_S = 6 * 3600.0  # without any answer, in virtual time: then the run is given up
PROGRESS_EVERY = 1_000  # steps of the bus between two calls

SOLVE_S = 1.0  # what a live search of full length takes on one core
PLAN_VISITS = 50_000  # a twentieth of that: a long simulation has thousands of plans

Progress = Callable[[int], None]


class StalledError(RuntimeError):
    """Requests wait, and nothing happens any more: no node can serve them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated."""

    config: ClusterConfig
    devices: Mapping[str, SimulatedDevice]
    """By the names of the nodes and pools."""
    requests: Sequence[WorkloadRequest]
    """In the order of arrival."""
    make_engine: MakeEngine = fast
    plan_visits: int = PLAN_VISITS
    """Effort of a plan; see `services.scheduler.solving.methods.anytime`."""
    solve_s: float = SOLVE_S
    """From a question for a plan to its answer."""
    max_predictions: int = MAX_PREDICTIONS
    """Newcomers whose wait is predicted, spread over the run: each prediction walks a queue."""
    utilization: float | None = None
    """Pools follow this share of memory in use (`UtilizationScaler`); None: the promises, if there is a provider."""

    @property
    def has_contents(self) -> bool:
        """Whether prompts have tokens that may come again."""
        return any(request.hash_ids for request in self.requests)


@dataclass(frozen=True, slots=True)
class NodeLife:
    """What a node did."""

    node: str
    kind: str
    busy_s: float
    counts: Counts
    loadings: Sequence[Loading]
    prefixes: PrefixCounts
    """Of what it has read in other nodes' caches."""


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """What happened. Times count from the start of the workload."""

    scenario: Scenario
    recording: Recording
    nodes: Sequence[NodeLife]
    leases: Sequence[NodeLease]
    """Of nodes of pools."""
    start_s: float
    """On the clock of the recording."""
    end_s: float
    num_plans: int
    idle_while_waiting: Mapping[Cause, float]
    """Shares of the device time by cause (`services.simulator.idleness`)."""

    @property
    def node_s(self) -> float:
        """For how long nodes were there, all together: what is paid for."""
        pools = self.scenario.config.pools
        num_fixed = sum(not any(pool.ordinal(node.node) is not None for pool in pools) for node in self.nodes)
        leased_s = sum(lease.seconds(self.start_s, self.end_s) for lease in self.leases)
        return num_fixed * (self.end_s - self.start_s) + leased_s


def simulate(scenario: Scenario, progress: Progress = lambda _: None) -> SimulationRun:
    """Run until every request is over; ``progress`` hears how many are. The same scenario gives the same run.

    A request waits in vain where no node may ever have its model: when all others are over, it is over as `UNSERVED`.
    Raises `WorkloadError` for requests that no device can serve, `StalledError` when nothing happens any more, and
    `FastEngineError` for what the engine cannot do.
    """
    simulation = Simulation(scenario)
    simulation.run_until(lambda: False, progress)
    return simulation.end()


class Simulation:
    """A scenario on its way, from the first request on: can be stopped, looked at, and made to go on differently."""

    def __init__(self, scenario: Scenario) -> None:
        """Raises `WorkloadError` for requests that no device can serve, `FastEngineError` for options of the engine."""
        _check(scenario)
        self._scenario = scenario
        self._cluster = SimulatedCluster(
            scenario.config,
            scenario.devices,
            answer_tokens=self._answer_tokens,
            make_engine=scenario.make_engine,
            solve=searching(scenario.plan_visits),
            solve_s=lambda _: scenario.solve_s,
            has_contents=scenario.has_contents,
        )
        if scenario.utilization is not None:
            UtilizationScaler(self._cluster.bus, scenario.config.pools, scenario.utilization)
        self._traffic = Traffic(self._cluster, scenario.config, scenario.requests, WARM_UP_S, scenario.max_predictions)
        self._cluster.bus.run_until(WARM_UP_S)
        nodes = self._cluster.nodes
        self._num_loaded = {name: len(node.loadings) for name, node in nodes.items()}
        self._busy_s = {name: node.busy_s for name, node in nodes.items()}
        self._num_plans = self._cluster.scheduler.core.state.num_plans
        self._idle = IdleWatch(self._cluster, scenario.config, lambda name: self._traffic.outcomes[int(name)])
        self._traffic.begin()

    @property
    def recording(self) -> Recording:
        """What has happened."""
        return self._traffic.recording

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._cluster.bus.now

    @property
    def outcomes(self) -> Sequence[ClientOutcome]:
        """Of the requests that have been sent, by number."""
        return self._traffic.outcomes

    @property
    def queue_manager(self) -> QueueManagerCore:
        """To be asked, and not told."""
        return self._cluster.queue_manager.core

    def listen(self, listener: Listener) -> None:
        """Have a listener told of every message from now on, when it is sent."""
        self._cluster.bus.listen(listener)

    def run_until(self, is_reached: Callable[[], bool], progress: Progress = lambda _: None) -> bool:
        """Go on until something is so, which is returned, or every request is over.

        Raises `StalledError` when nothing happens any more.
        """
        traffic, bus = self._traffic, self._cluster.bus
        num_awaited, last_s = len(traffic.awaited), bus.now
        while traffic.awaited:
            for _ in range(PROGRESS_EVERY):
                if is_reached():
                    return True
                bus.step()
                if not traffic.awaited:
                    break
            if len(traffic.awaited) < num_awaited:
                num_awaited, last_s = len(traffic.awaited), bus.now
                progress(traffic.num_requests - num_awaited)
            elif bus.now - last_s > STALL_S:
                raise StalledError(f"{num_awaited} requests have waited for {STALL_S:.0f} s without an answer")
        return is_reached()

    def num_drawn_tokens(self) -> dict[int, int]:
        """How much there is by now of each answer that is not over, by number of the request."""
        untold = Counter[str]()
        for node in self._live_nodes():
            untold.update(node.engine.num_untold_tokens(self._cluster.bus.now))
        return {
            outcome.number: outcome.num_tokens + untold[str(outcome.number)]
            for outcome in self._traffic.outcomes
            if not outcome.reason
        }

    def redraw(self, answer_tokens: Mapping[int, int], later: Sequence[WorkloadRequest]) -> None:
        """Let the run go on differently: answers end elsewhere, and others come than would have come.

        ``answer_tokens`` says how long the answers of requests that are not over will be; each is more than is drawn of
        it (`num_drawn_tokens`), or ends with its next token. What a step that runs draws is drawn already.
        """
        self._traffic.redraw(answer_tokens, later)
        for node in self._live_nodes():
            node.redraw()

    def end(self) -> SimulationRun:
        """Every request is over."""
        assert not self._traffic.awaited, "requests are on their way"
        self._traffic.end()
        cluster = self._cluster
        lives = [
            NodeLife(
                name,
                node.kind,
                node.busy_s - self._busy_s.get(name, 0.0),
                node.engine.counts,
                node.loadings[self._num_loaded.get(name, 0) :],
                node.prefix_counts,
            )
            for name, node in cluster.nodes.items()
        ]
        num_plans = cluster.scheduler.core.state.num_plans - self._num_plans
        leases = cluster.provider.leases
        return SimulationRun(
            self._scenario,
            self.recording,
            lives,
            leases,
            WARM_UP_S,
            cluster.bus.now,
            num_plans,
            self._idle.shares,
        )

    def _live_nodes(self) -> list[SimulatedNode]:
        return [node for node in self._cluster.nodes.values() if node.is_alive]

    def _answer_tokens(self, sampling: Sampling) -> int:
        return self._traffic.answer_tokens(sampling.seed)


def _check(scenario: Scenario) -> None:
    if not scenario.requests:
        raise WorkloadError("the workload has no requests")
    if scenario.make_engine is fast and scenario.has_contents:
        raise FastEngineError(["prompts that begin alike (hash_ids)"])
    for model in dict.fromkeys(request.model for request in scenario.requests):
        if not any(model in device.models for device in scenario.devices.values()):
            kinds = ", ".join(dict.fromkeys(device.kind for device in scenario.devices.values()))
            raise WorkloadError(f"no device can serve {model!r}: it does not fit into {kinds}")
