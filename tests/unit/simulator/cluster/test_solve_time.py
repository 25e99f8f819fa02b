"""A plan comes as long after its question as the problem takes."""

from __future__ import annotations

from services.simulator.cluster.cluster import SimulatedCluster
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.messages.message import Message
from shared.messages.nodes.placement import PlanRequest, Solved
from tests.unit.simulated import MODELS, READY_S, submit

BUS_S = 0.001  # until the scheduler has the question
SOLVE_S = {"a": 2.0, "b": 0.5}


def test_a_plan_takes_a_time_by_its_problem() -> None:
    config = ClusterConfig(models=[ModelSpec(name=name, source="none", max_model_len=2048) for name in MODELS])
    cluster = SimulatedCluster(config, solve_s=lambda problem: SOLVE_S[problem.groups[0].model])
    asked: dict[int, tuple[float, str]] = {}
    took: set[tuple[str, float]] = set()

    def note(now: float, stream: str, message: Message) -> None:
        del stream
        if isinstance(message, PlanRequest):
            asked[message.version] = now, message.groups[0].model
        elif isinstance(message, Solved):
            asked_s, model = asked[message.plan.version]
            took.add((model, round(now - asked_s, 6)))

    cluster.bus.listen(note)
    for model in MODELS:
        for number in range(80):
            submit(cluster, f"{model}-{number}", model=model, num_tokens=90)
        cluster.bus.run_until(cluster.bus.now + 12 * READY_S)
        assert cluster.gateway.unfinished == []
    assert took == {(model, seconds + BUS_S) for model, seconds in SOLVE_S.items()}
