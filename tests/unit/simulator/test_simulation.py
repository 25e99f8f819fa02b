"""Whole simulations: the same scenario gives the same report, whichever engine is behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from services.simulator.cluster.cluster import fast, stepped
from services.simulator.devices.catalogue import cluster_config, device, devices_of
from services.simulator.reports.chrome_trace import chrome_trace
from services.simulator.reports.report import report
from services.simulator.simulation import WARM_UP_S, Scenario, Simulation, SimulationRun, simulate
from services.simulator.workloads.paper import WORKLOADS
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from shared.config.services.queue import OperationOptions, QueueOptions

PLAN_VISITS = 2_000


def scenario(
    workload: str = "wb",
    num_requests: int = 60,
    seed: int = 1,
    policy: str = "qlm",
    devices: Mapping[str, int] = MappingProxyType({"a100": 2, "a10": 1}),
) -> Scenario:
    """Batches of 8 at most, so that requests wait."""
    models = list(WORKLOADS[workload].models.weights)
    nodes = devices_of(devices, models)
    return Scenario(
        config=cluster_config(list(nodes), models, QueueOptions.model_validate({"policy": policy}), max_num_seqs=8),
        devices=nodes,
        requests=WORKLOADS[workload].draw(12.0, num_requests, Random(seed)),
        plan_visits=PLAN_VISITS,
    )


@pytest.fixture(scope="module")
def run() -> SimulationRun:
    return simulate(scenario())


def test_every_request_is_answered_with_all_its_tokens(run: SimulationRun) -> None:
    assert len(run.recording.outcomes) == 60
    for outcome in run.recording.outcomes:
        assert outcome.reason == "stop"
        assert outcome.num_tokens == outcome.request.output_tokens
        assert outcome.started_s is not None
        assert outcome.first_token_s is not None
        assert outcome.finished_s is not None
        assert outcome.sent_s <= outcome.started_s < outcome.first_token_s <= outcome.finished_s


def test_models_are_swapped_where_there_are_more_than_nodes_for_them(run: SimulationRun) -> None:
    found = report(run)
    assert found["num_requests"] == found["num_answered"] == 60
    assert found["model_swaps"] > 0
    assert 0 < found["device_utilisation"] <= 1


def test_the_same_scenario_gives_the_same_bytes(run: SimulationRun) -> None:
    assert json.dumps(report(simulate(scenario()))) == json.dumps(report(run))
    assert json.dumps(report(simulate(scenario(seed=2)))) != json.dumps(report(run))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fcfs", "edf"])
def test_both_engines_give_the_same_run(policy: str) -> None:
    """The live bookkeeping step by step, and the one that jumps: one node, and an order that goes by no prediction.

    Predictions hang on what an engine has learnt of its steps, which the fast one knows from the start.
    """
    small = scenario("wa", num_requests=40, policy=policy, devices={"a100": 1})
    fast_run, slow_run = simulate(small), simulate(replace(small, make_engine=stepped))
    for one, other in zip(by_number(fast_run), by_number(slow_run), strict=True):
        assert (one[0], one[3:]) == (other[0], other[3:])
        assert one[1:3] == pytest.approx(other[1:3], rel=1e-9)


def by_number(run: SimulationRun) -> list[tuple[int, float, float, int, str]]:
    outcomes = sorted(run.recording.outcomes, key=lambda outcome: outcome.number)
    return [(one.number, one.first_token_s or 0, one.finished_s or 0, one.num_tokens, one.reason) for one in outcomes]


def stopped(small: Scenario, num_sent: int) -> Simulation:
    simulation = Simulation(small)
    assert simulation.run_until(lambda: len(simulation.outcomes) == num_sent)
    return simulation


def ended(simulation: Simulation) -> SimulationRun:
    assert not simulation.run_until(lambda: False)
    return simulation.end()


@pytest.mark.parametrize("num_sent", [1, 25, 40])
def test_a_run_that_is_redrawn_as_it_was_goes_on_as_it_would_have(num_sent: int) -> None:
    small = scenario("wa", num_requests=40, devices={"a100": 1})
    simulation = stopped(small, num_sent)
    lengths = {number: small.requests[number].output_tokens for number in simulation.num_drawn_tokens()}
    simulation.redraw(lengths, small.requests[num_sent:])
    for one, other in zip(by_number(ended(simulation)), by_number(simulate(small)), strict=True):
        assert (one[0], one[3:]) == (other[0], other[3:])
        assert one[1:3] == pytest.approx(other[1:3], rel=1e-9)


def test_what_is_redrawn_is_what_happens() -> None:
    small = scenario("wa", num_requests=40, policy="fcfs", devices={"a100": 1})
    simulation = stopped(small, 30)
    drawn = simulation.num_drawn_tokens()
    assert sum(num_tokens > 0 for num_tokens in drawn.values()) == 8
    later = [replace(request, arrival_s=request.arrival_s + 0.5) for request in small.requests[30:35]]
    simulation.redraw({number: num_tokens + 7 for number, num_tokens in drawn.items()}, later)
    outcomes = sorted(ended(simulation).recording.outcomes, key=lambda outcome: outcome.number)
    expected = {number: request.output_tokens for number, request in enumerate([*small.requests[:30], *later])}
    assert {one.number: one.num_tokens for one in outcomes} == {
        **expected,
        **{number: num_tokens + 7 for number, num_tokens in drawn.items()},
    }
    assert all(one.num_tokens == one.request.output_tokens for one in outcomes)
    assert [one.sent_s for one in outcomes[30:]] == [WARM_UP_S + request.arrival_s for request in later]


def test_both_engines_have_drawn_as_much_of_each_answer() -> None:
    """But for the step that runs: clients of the live bookkeeping hear of its tokens at its end."""
    small = scenario("wa", num_requests=40, policy="fcfs", devices={"a100": 1})
    fast_drawn, slow_drawn = (
        stopped(replace(small, make_engine=make_engine), 30).num_drawn_tokens() for make_engine in (fast, stepped)
    )
    assert fast_drawn.keys() == slow_drawn.keys()
    assert max(fast_drawn.values()) > 20
    assert all(0 <= fast_drawn[number] - slow_drawn[number] <= 1 for number in fast_drawn)


def test_the_trace_has_a_lane_a_device_and_closes_what_it_opens(run: SimulationRun) -> None:
    events = chrome_trace(run)["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["a100-0", "a100-1", "a10-0"]
    begun = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    ended = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert all(0 <= begun[number] < ended[number] for number in begun)
    loads = [event for event in events if event["ph"] == "X"]
    assert len(loads) == report(run)["model_swaps"]
    assert all(event["dur"] > 0 for event in loads)


def test_a_model_that_fits_nowhere_is_an_error() -> None:
    nodes = devices_of({"a10": 1}, ["llama-70b"])
    request = WorkloadRequest(0.0, "llama-70b", "batch-1", 10, 10)
    alone = Scenario(cluster_config(list(nodes), ["llama-70b"], QueueOptions()), nodes, [request])
    with pytest.raises(WorkloadError, match="no device can serve 'llama-70b': it does not fit into a10"):
        simulate(alone)


def test_requests_for_a_model_that_no_node_may_ever_hold_are_over_without_an_answer() -> None:
    """One node, and it may not change its model: the other half of the requests waits in vain."""
    nodes = devices_of({"a100": 1}, ["mistral-7b", "vicuna-13b"])
    names = ["mistral-7b", "vicuna-13b"] * 3
    requests = [WorkloadRequest(float(at), model, "batch-2", 10, 10) for at, model in enumerate(names)]
    queue = QueueOptions(operations=OperationOptions(swap=False))
    found = report(simulate(Scenario(cluster_config(list(nodes), names[:2], queue), nodes, requests)))
    assert (found["num_requests"], found["num_answered"], found["num_unserved"]) == (6, 3, 3)
    assert found["slo_attainment_by_model"] == {"mistral-7b": 1.0, "vicuna-13b": 0.0}
    assert found["makespan_s"] < 6.0, "nobody waits for them"


def test_devices_hold_what_fits_their_memory() -> None:
    models = ["mistral-7b", "vicuna-13b", "llama-70b"]
    assert list(device("a10", models).models) == ["mistral-7b"]
    assert list(device("a100", models).models) == models


def paced(is_paced: bool, slo: str) -> dict[str, Any]:
    """Ten requests of ``slo``, and three hundred that have an hour, a little later: one A100."""
    nodes = devices_of({"a100": 1}, ["mistral-7b"])
    queue = QueueOptions(operations=OperationOptions(pace=is_paced))
    first = [WorkloadRequest(0.01 * number, "mistral-7b", slo, 50, 600) for number in range(10)]
    later = [WorkloadRequest(0.2 + 0.01 * number, "mistral-7b", "batch-2", 50, 600) for number in range(300)]
    config = cluster_config(list(nodes), ["mistral-7b"], queue)
    return report(simulate(Scenario(config, nodes, [*first, *later], plan_visits=PLAN_VISITS)))


@pytest.mark.slow
def test_who_has_time_leaves_a_batch_its_pace() -> None:
    """600 tokens in 20 s are 0.033 s a step: one of 256 takes 0.035 s. The last answer is no later for it."""
    full, bounded = paced(False, "interactive"), paced(True, "interactive")
    assert full["slo_attainment_by_class"] == {"interactive": 0.0, "batch-2": 1.0}
    assert bounded["slo_attainment_by_class"] == {"interactive": 1.0, "batch-2": 1.0}
    assert bounded["makespan_s"] == pytest.approx(full["makespan_s"], rel=0.01)


def test_where_no_promise_asks_for_a_pace_nothing_is_held_up() -> None:
    assert paced(True, "batch-2") == paced(False, "batch-2")
