"""A workload on a simulated cluster, from the first request to the last answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.simulator.clients import Clients, Outcome
from services.simulator.cluster import MakeEngine, SimulatedCluster, fast, searching
from services.simulator.device import Device
from services.simulator.node import Loading
from services.simulator.recording import MAX_PREDICTIONS, Recorder, Recording
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
    """By the names of the nodes."""
    requests: Sequence[WorkloadRequest]
    """In the order of arrival."""
    make_engine: MakeEngine = fast
    plan_visits: int = PLAN_VISITS
    """Effort of a plan; see `services.scheduler.anytime`."""
    solve_s: float = SOLVE_S
    """From a question for a plan to its answer."""


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
    start_s: float
    """On the clock of the recording."""
    end_s: float
    num_plans: int


def simulate(scenario: Scenario, progress: Progress = lambda _: None) -> Run:
    """Run until every request is over; ``progress`` hears how many are. The same scenario gives the same run.

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
        solve_s=scenario.solve_s,
    )
    outcomes: dict[str, Outcome] = {}
    recorder = Recorder(
        outcomes.__getitem__, lambda: cluster.queue_manager.core.predictions, -(-len(requests) // MAX_PREDICTIONS)
    )
    clients = Clients(cluster.bus, scenario.config, recorder.over)
    cluster.bus.listen(recorder)
    cluster.bus.run_until(WARM_UP_S)
    num_loaded = {name: len(node.loadings) for name, node in cluster.nodes.items()}
    busy_s = {name: node.busy_s for name, node in cluster.nodes.items()}
    num_plans = cluster.scheduler.core.state.num_plans

    def submit(number: int) -> None:
        outcomes[str(number)] = clients.submit(number, requests[number])
        if number + 1 < len(requests):
            cluster.bus.at(WARM_UP_S + requests[number + 1].arrival_s, lambda: submit(number + 1))

    cluster.bus.at(WARM_UP_S + requests[0].arrival_s, lambda: submit(0))
    _run(cluster, recorder.recording, len(requests), progress)
    lives = [
        NodeLife(
            name,
            scenario.devices[name].kind,
            node.busy_s - busy_s[name],
            node.engine.num_preemptions,
            node.loadings[num_loaded[name] :],
        )
        for name, node in cluster.nodes.items()
    ]
    num_plans = cluster.scheduler.core.state.num_plans - num_plans
    return Run(scenario, recorder.recording, lives, WARM_UP_S, cluster.bus.now, num_plans)


def _check(scenario: Scenario) -> None:
    if not scenario.requests:
        raise WorkloadError("the workload has no requests")
    for model in dict.fromkeys(request.model for request in scenario.requests):
        if not any(model in device.models for device in scenario.devices.values()):
            kinds = ", ".join(dict.fromkeys(device.kind for device in scenario.devices.values()))
            raise WorkloadError(f"no device can serve {model!r}: it does not fit into {kinds}")


def _run(cluster: SimulatedCluster, recording: Recording, num_requests: int, progress: Progress) -> None:
    num_over = 0
    last_s = cluster.bus.now
    while len(recording.outcomes) < num_requests:
        for _ in range(PROGRESS_EVERY):
            cluster.bus.step()
            if len(recording.outcomes) == num_requests:
                break
        if len(recording.outcomes) > num_over:
            num_over, last_s = len(recording.outcomes), cluster.bus.now
            progress(num_over)
        elif cluster.bus.now - last_s > STALL_S:
            raise StalledError(f"{num_requests - num_over} requests have waited for {STALL_S:.0f} s without an answer")
