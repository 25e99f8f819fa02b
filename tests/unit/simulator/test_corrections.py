"""Each correction of predicted waits makes a difference in a simulation, and most change what is told alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from services.simulator.devices.catalogue import cluster_config, device
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import poisson
from services.simulator.workloads.lengths import draw_sharegpt
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.corrections import Correction, PredictionOptions
from shared.config.services.queue import QueueOptions
from shared.messages.message import Message
from shared.messages.requests.requests import QueueStatus

SLOS = ("interactive", "batch-1", "batch-2", "batch-2")
MODELS = ("mistral-7b", "vicuna-13b")
DECIDE = {Correction.PROMPTS, Correction.CALIBRATION}
DECIDE_BETWEEN_MODELS = DECIDE | {Correction.INTERRUPTIONS, Correction.CHANGE_POINTS, Correction.LIFETIMES}


class Seen(NamedTuple):
    """What clients see, and what is predicted for them at each status."""

    outcomes: list[tuple[int, str, float | None, float | None]]
    told: list[object]


@dataclass(frozen=True, slots=True)
class Case:
    """What comes, and where it is served."""

    num_models: int
    nodes: tuple[str, ...]
    rate_per_s: float
    num_requests: int
    num_seqs: int


ONE_MODEL = Case(1, ("n",), 40.0, 200, 128)
"""Keeps a batch full that leaves headroom."""
TWO_MODELS = Case(2, ("n",), 3.0, 60, 8)
"""They take turns on a node of eight places."""
TWO_NODES = Case(2, ("n1", "n2"), 20.0, 80, 4)
"""One of them is often served at the other node."""


@cache
def seen(case: Case, without: frozenset[Correction] = frozenset()) -> Seen:
    """The run, told second by second."""
    random, models = Random(5), MODELS[: case.num_models]
    requests = []
    for arrival_s in poisson(case.rate_per_s, case.num_requests, random):
        model, slo = random.choice((models[0], models[0], models[-1])), random.choice(SLOS)
        requests.append(WorkloadRequest(arrival_s, model, slo, *draw_sharegpt(random)))
    queue = QueueOptions(predictions=PredictionOptions(without=tuple(without)))
    config = cluster_config(list(case.nodes), models, queue, case.num_seqs)
    devices = dict.fromkeys(case.nodes, device("a100", models))
    simulation = Simulation(Scenario(config, devices, requests, plan_visits=500, max_predictions=0))
    told: list[object] = []

    def hear(now: float, stream: str, message: Message) -> None:
        if isinstance(message, QueueStatus):
            told.append((message.lines, list(waits(simulation, now))))

    simulation.listen(hear)
    simulation.run_until(lambda: False)
    return Seen([(one.number, one.reason, one.first_token_s, one.finished_s) for one in simulation.outcomes], told)


def waits(simulation: Simulation, now: float) -> Iterable[object]:
    """Of the first who waits in each group."""
    core = simulation.queue_manager
    elsewhere = core.predictions.elsewhere(now)
    for node in core.state.nodes.values():
        for group, outlook in core.predictions.outlooks(node, elsewhere, now):
            yield group.gid, outlook.wait_at(0)


@pytest.mark.slow
@pytest.mark.parametrize("correction", Correction)
def test_each_makes_a_difference_and_the_run_ends(correction: Correction) -> None:
    def makes_one(case: Case) -> bool:
        without = seen(case, frozenset({correction}))
        assert all(reason == "stop" for _, reason, _, _ in without.outcomes)
        return without != seen(case)

    assert any(map(makes_one, (ONE_MODEL, TWO_MODELS, TWO_NODES)))


@pytest.mark.slow
@pytest.mark.parametrize("case", [ONE_MODEL, TWO_MODELS, TWO_NODES])
def test_nothing_else_is_done_without_those_that_are_told_alone(case: Case) -> None:
    told_alone = frozenset(Correction) - (DECIDE if case.num_models == 1 else DECIDE_BETWEEN_MODELS)
    assert seen(case, told_alone).outcomes == seen(case).outcomes
    assert seen(case, told_alone).told != seen(case).told
