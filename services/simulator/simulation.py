"""A workload on a simulated cluster, from the first request to the last answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.simulator.clients import UNSERVED, Clients, Outcome
from services.simulator.cluster import MakeEngine, SimulatedCluster, fast, searching
from services.simulator.device import Device
from services.simulator.node import Loading
from services.simulator.pools import Lease
from services.simulator.recording import MAX_PREDICTIONS, Recorder, Recording
from services.simulator.utilization import UtilizationScaler
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from shared.config import ClusterConfig
from shared.payload import Sampling

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
    devices: Mapping[str, Device]
    """By the names of the nodes and pools."""
    requests: Sequence[WorkloadRequest]
    """In the order of arrival."""
    make_engine: MakeEngine = fast
    plan_visits: int = PLAN_VISITS
    """Effort of a plan; see `services.scheduler.anytime`."""
    solve_s: float = SOLVE_S
    """From a question for a plan to its answer."""
    utilization: float | None = None
    """Pools follow this share of memory in use (`UtilizationScaler`); None: the promises, if there is a provider."""


@dataclass(frozen=True, slots=True)
class NodeLife:
    """What a node did."""

    node: str
    kind: str
    busy_s: float
    num_preemptions: int
    loadings: Sequence[Loading]


@dataclass(frozen=True, slots=True)
class Run:
    """What happened. Times count from the start of the workload."""

    scenario: Scenario
    recording: Recording
    nodes: Sequence[NodeLife]
    leases: Sequence[Lease]
    """Of nodes of pools."""
    start_s: float
    """On the clock of the recording."""
    end_s: float
    num_plans: int

    @property
    def node_s(self) -> float:
        """For how long nodes were there, all together: what is paid for."""
        pools = self.scenario.config.pools
        num_fixed = sum(not any(pool.ordinal(node.node) is not None for pool in pools) for node in self.nodes)
        leased_s = sum(lease.seconds(self.start_s, self.end_s) for lease in self.leases)
        return num_fixed * (self.end_s - self.start_s) + leased_s


def simulate(scenario: Scenario, progress: Progress = lambda _: None) -> Run:
    """Run until every request is over; ``progress`` hears how many are. The same scenario gives the same run.

    A request waits in vain where no node may ever have its model: when all others are over, it is over as `UNSERVED`.
    Raises `WorkloadError` for requests that no device can serve, `StalledError` when nothing happens any more.
    """
    _check(scenario)
    requests = scenario.requests

    def answer_tokens(sampling: Sampling) -> int:
        return requests[sampling.seed].output_tokens

    cluster = SimulatedCluster(
        scenario.config,
        scenario.devices,
        answer_tokens=answer_tokens,
        make_engine=scenario.make_engine,
        solve=searching(scenario.plan_visits),
        solve_s=lambda _: scenario.solve_s,
    )
    if scenario.utilization is not None:
        UtilizationScaler(cluster.bus, scenario.config.pools, scenario.utilization)
    workload = _Workload(scenario, cluster)
    cluster.bus.run_until(WARM_UP_S)
    num_loaded = {name: len(node.loadings) for name, node in cluster.nodes.items()}
    busy_s = {name: node.busy_s for name, node in cluster.nodes.items()}
    num_plans = cluster.scheduler.core.state.num_plans
    workload.begin()
    _run(cluster, workload.awaited, len(requests), progress)
    workload.end()
    lives = [
        NodeLife(
            name,
            node.kind,
            node.busy_s - busy_s.get(name, 0.0),
            node.engine.num_preemptions,
            node.loadings[num_loaded.get(name, 0) :],
        )
        for name, node in cluster.nodes.items()
    ]
    num_plans = cluster.scheduler.core.state.num_plans - num_plans
    leases = cluster.provider.leases
    return Run(scenario, workload.recording, lives, leases, WARM_UP_S, cluster.bus.now, num_plans)


class _Workload:
    """Owns the requests of a run: each is sent in its time, and awaited until it is over."""

    def __init__(self, scenario: Scenario, cluster: SimulatedCluster) -> None:
        self.awaited = set(range(len(scenario.requests)))
        """Numbers of the requests that are not over, but for those that have been sent in vain."""
        self._scenario = scenario
        self._cluster = cluster
        self._servable: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}
        self._recorder = Recorder(
            self._outcomes.__getitem__,
            lambda: cluster.queue_manager.core.predictions,
            -(-len(scenario.requests) // MAX_PREDICTIONS),
        )
        self._clients = Clients(cluster.bus, scenario.config, self._over)
        cluster.bus.listen(self._recorder)

    @property
    def recording(self) -> Recording:
        """What has happened."""
        return self._recorder.recording

    def begin(self) -> None:
        """Nodes have their models."""
        self._servable = _servable_models(self._scenario.config, self._cluster)
        self._submit_later(0)

    def end(self) -> None:
        """Nobody is awaited any more: what was sent in vain is over."""
        for outcome in self._outcomes.values():
            if not outcome.reason:
                outcome.reason = UNSERVED
                self._over(outcome)

    def _submit_later(self, number: int) -> None:
        if number < len(self._scenario.requests):
            time_s = WARM_UP_S + self._scenario.requests[number].arrival_s
            self._cluster.bus.at(time_s, lambda: self._submit(number))

    def _submit(self, number: int) -> None:
        request = self._scenario.requests[number]
        self._outcomes[str(number)] = self._clients.submit(number, request)
        if request.model not in self._servable:
            self.awaited.discard(number)
        self._submit_later(number + 1)

    def _over(self, outcome: Outcome) -> None:
        self._recorder.over(outcome)
        self.awaited.discard(outcome.number)


def _check(scenario: Scenario) -> None:
    if not scenario.requests:
        raise WorkloadError("the workload has no requests")
    for model in dict.fromkeys(request.model for request in scenario.requests):
        if not any(model in device.models for device in scenario.devices.values()):
            kinds = ", ".join(dict.fromkeys(device.kind for device in scenario.devices.values()))
            raise WorkloadError(f"no device can serve {model!r}: it does not fit into {kinds}")


def _servable_models(config: ClusterConfig, cluster: SimulatedCluster) -> set[str]:
    """Models that a node may have: where none may change its model, those that they have or load by now."""
    held = {node.core.models.loading or node.core.model for node in cluster.nodes.values()}
    models = {model.name for model in config.models}
    return models if config.queue.operations.swap or "" in held else held


def _run(cluster: SimulatedCluster, awaited: set[int], num_requests: int, progress: Progress) -> None:
    """Until nobody is awaited any more, of so many."""
    num_awaited = num_requests
    last_s = cluster.bus.now
    while awaited:
        for _ in range(PROGRESS_EVERY):
            cluster.bus.step()
            if not awaited:
                break
        if len(awaited) < num_awaited:
            num_awaited, last_s = len(awaited), cluster.bus.now
            progress(num_requests - num_awaited)
        elif cluster.bus.now - last_s > STALL_S:
            raise StalledError(f"{num_awaited} requests have waited for {STALL_S:.0f} s without an answer")
