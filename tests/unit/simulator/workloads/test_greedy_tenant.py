"""A tenant that asks for far more than its share, beside one that does not: in virtual time, by the live decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import ONE_MODEL, PaperWorkload
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.queue import QueueOptions, TenantSpec

pytestmark = pytest.mark.slow

NUM_SEQS = 32
SHARE_PER_S = 3.0  # half of what an A100 answers
CALM_S, SPAN_S = 20.0, 60.0
MODEST_PER_S = 1.0


def drawn(tenant: str, per_s: float, seconds: float, slo: str, seed: int) -> list[WorkloadRequest]:
    requests = PaperWorkload(ONE_MODEL, WeightedNames({slo: 1})).draw(per_s, int(per_s * seconds), Random(seed))
    return [replace(one, tenant=tenant) for one in requests]


def simulation(requests: Sequence[WorkloadRequest], **tenants: TenantSpec) -> Simulation:
    devices = devices_of({"a100": 1}, ["mistral-7b"])
    config = cluster_config(list(devices), ["mistral-7b"], QueueOptions(), NUM_SEQS)
    config = config.model_copy(update={"tenants": tenants})
    ordered = sorted(requests, key=lambda one: one.arrival_s)
    return Simulation(Scenario(config, devices, ordered, max_predictions=0))


def of_modest(requests: Sequence[WorkloadRequest]) -> list[ClientOutcome]:
    """What the modest tenant sees once the other one has begun."""
    run = simulation(requests)
    num = sum(one.tenant == "modest" for one in requests)
    run.run_until(lambda: sum(one.request.tenant == "modest" for one in run.recording.outcomes) == num)
    return [one for one in run.recording.outcomes if one.request.tenant == "modest" and one.request.arrival_s >= CALM_S]


def worst_s(outcomes: Sequence[ClientOutcome]) -> tuple[float, float]:
    """Of twenty the second worst: to first token, and end to end."""
    assert all(one.is_answered for one in outcomes)
    firsts = sorted((one.first_token_s or 0.0) - one.sent_s for one in outcomes)
    ends = sorted((one.finished_s or 0.0) - one.sent_s for one in outcomes)
    place = int(0.95 * len(outcomes))
    return firsts[place], ends[place]


@pytest.mark.parametrize("slo", ["interactive", "batch-1"])
def test_a_flood_moves_another_tenants_times_by_less_than_a_tenth(slo: str) -> None:
    modest = drawn("modest", MODEST_PER_S, CALM_S + SPAN_S, "interactive", 1)
    share = drawn("greedy", SHARE_PER_S, CALM_S + SPAN_S, slo, 2)
    flood = [replace(one, arrival_s=one.arrival_s + CALM_S) for one in drawn("greedy", 40.0, 15.0, slo, 3)]
    calm = [one for one in share if one.arrival_s < CALM_S]
    usual_s, flooded_s = worst_s(of_modest([*modest, *share])), worst_s(of_modest([*modest, *calm, *flood]))
    assert flooded_s[0] < 1.1 * usual_s[0]
    assert flooded_s[1] < 1.1 * usual_s[1]


def test_tokens_are_divided_by_weight_while_both_want_more_than_there_is() -> None:
    requests = [*drawn("one", 6.0, 50.0, "batch-1", 1), *drawn("three", 12.0, 50.0, "batch-1", 2)]
    run = simulation(requests, three=TenantSpec(weight=3))
    begun_s = run.now_s
    tokens = dict.fromkeys(("one", "three"), 0)
    assert run.run_until(lambda: run.now_s > begun_s + 100.0)
    for outcome in run.outcomes:
        tokens[outcome.request.tenant] += outcome.num_tokens
    assert tokens["three"] / tokens["one"] == pytest.approx(3.0, rel=0.1)
