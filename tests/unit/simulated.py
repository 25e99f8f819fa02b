"""A whole cluster in virtual time, for tests: requests, faults, and the books after every event."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from services.queue_manager import invariants
from services.simulator.cluster.cluster import SimulatedCluster
from shared.config.config import ClusterConfig
from shared.messages.requests.payload import Sampling

MODELS = ["a", "b"]
READY_S = 5.0
END_S = 300.0
STILL_S = 10.0
"""Behind the last answer: a node that died has come back, and what was left is tidied up."""


def submit(
    cluster: SimulatedCluster,
    name: str,
    model: str = "a",
    num_tokens: int = 5,
    slo: str = "interactive",
    num_choices: int = 1,
) -> None:
    promise = ClusterConfig().slo(slo)
    sampling = Sampling(
        max_tokens=num_tokens, seed=sum(name.encode()), num_choices=num_choices, num_candidates=num_choices
    )
    cluster.gateway.submit(name, model, promise, list(range(7)), sampling)


def run(cluster: SimulatedCluster, seconds: float) -> None:
    """Advance, with the books checked after every event."""
    end = cluster.bus.now + seconds
    cluster.bus.at(end, lambda: None)
    while cluster.bus.now < end and cluster.bus.step():
        invariants.check(cluster.queue_manager.core.state)
        for node in cluster.nodes.values():
            node.engine.check()


def run_to_the_end(cluster: SimulatedCluster) -> None:
    """Until every client has its answer, and what is left has been tidied up."""
    end = cluster.bus.now + END_S
    while cluster.gateway.unfinished and cluster.bus.now < end:
        run(cluster, 1.0)
    run(cluster, STILL_S)


def assert_nothing_left(cluster: SimulatedCluster) -> None:
    assert cluster.gateway.unfinished == []
    assert cluster.bus.payloads == {}
    assert cluster.bus.group_streams() == []
    assert cluster.queue_manager.core.state.requests == {}
    for node in cluster.nodes.values():
        assert node.core.running == {}


# --- drawn events ----------------------------------------------------------------------------------------------------

FAULTS = st.one_of(
    st.tuples(st.just("die"), st.sampled_from(["node-0", "node-1"])),
    st.tuples(st.just("leave"), st.sampled_from(["node-0", "node-1"])),
    st.tuples(st.just("restart"), st.sampled_from(["queue_manager", "scheduler", "kv_manager"])),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
)


def play(cluster: SimulatedCluster, events: Sequence[tuple[float, tuple[object, ...]]]) -> dict[str, tuple[int, int]]:
    """Each event after its delay; the tokens and choices that requests asked for, without those that were cancelled.

    A node that died or left comes back after 8 s.
    """
    asked: dict[str, tuple[int, int]] = {}
    for place, (delay_s, event) in enumerate(events):
        run(cluster, delay_s)
        match event:
            case ("submit", str(model), int(num_tokens), str(slo), int(num_choices)):
                name = f"r{place}"
                asked[name] = (num_tokens, num_choices)
                submit(cluster, name, model, num_tokens, slo, num_choices)
            case ("die" | "leave" as how, str(name)):
                getattr(cluster.nodes[name], how)()
                cluster.bus.at(cluster.bus.now + 8, cluster.nodes[name].start)
            case ("restart", str(service)):
                getattr(cluster, service).restart()
            case ("cancel", int(number)) if f"r{number}" in cluster.gateway.unfinished:
                cluster.gateway.cancel(f"r{number}")
                del asked[f"r{number}"]
    return asked
