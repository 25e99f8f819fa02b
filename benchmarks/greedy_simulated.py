"""The simulated half of `greedy_tenant.py`: ShareGPT's lengths on one A100 with Mistral-7B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from greedy_times import GREEDY, MODEST, MODEST_PER_S, NUM_SEQS, ONE, THREE, TIMES, Times, moved
from load.insisting import NUM_PROMPT_TOKENS, NUM_TOKENS

from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import ONE_MODEL, PaperWorkload
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.queue import QueueOptions, TenantSpec

SHARE_PER_S, LONG_MODEST_PER_S, LONG_MODEST_REQUESTS = 3.0, 1.0, 300  # the node answers 6 requests a second
HELD = 4096 * 15 // 16  # requests of one tenant that a gateway holds by default
LIVE_SHARE_PER_S, LIVE_REQUESTS, LIVE_FLOOD_S = 16.0, 1_200, 0.5  # answers of the live half: 32 a second
LIVE_BEFORE_S = 5.0  # that the crowd is there before times count, as in the live half
WARM_UP_S = 30.0  # both at their share, while lengths and costs are learnt


def simulated(slo: str, seed: int) -> dict[str, Any]:
    """The three cases; ``slo`` is the class that the greedy tenant asks for."""
    span_s = WARM_UP_S + LONG_MODEST_REQUESTS / LONG_MODEST_PER_S
    modest = _drawn(MODEST, LONG_MODEST_PER_S, int(LONG_MODEST_PER_S * span_s), "interactive", seed)
    share = _drawn(GREEDY, SHARE_PER_S, int(SHARE_PER_S * span_s), slo, seed + 1)
    flood = _drawn(GREEDY, TIMES * SHARE_PER_S, HELD, slo, seed + 2)
    refill = _drawn(GREEDY, 2 * SHARE_PER_S, int(2 * SHARE_PER_S * span_s), slo, seed + 3)
    greedy = [
        *(one for one in share if one.arrival_s < WARM_UP_S),
        *(replace(one, arrival_s=one.arrival_s + WARM_UP_S) for one in [*flood, *refill]),
    ]
    cases = {"alone": modest, "share": [*modest, *share], "greedy": [*modest, *greedy]}
    figures = {name: _simulate(requests)[0].figures() for name, requests in cases.items()}
    return {"cases": figures, "moved": moved(figures)}


def simulated_as_live() -> dict[str, Any]:
    """The live half's cases with its lengths, in virtual time: what of its figures is the node's and the queue's.

    Processes, sockets and the cores that they share are not in it.
    """
    span_s = WARM_UP_S + LIVE_REQUESTS / MODEST_PER_S
    modest = _equal(MODEST, MODEST_PER_S, span_s, 1)
    share = _equal(GREEDY, LIVE_SHARE_PER_S, span_s, 2)
    flood = _equal(GREEDY, TIMES * LIVE_SHARE_PER_S, LIVE_FLOOD_S, 3)
    refill = _equal(GREEDY, 3 * LIVE_SHARE_PER_S, span_s, 4)  # more than the node answers, so that it does not run dry
    came_s = WARM_UP_S - LIVE_BEFORE_S
    greedy = [
        *(one for one in share if one.arrival_s < came_s),
        *(replace(one, arrival_s=one.arrival_s + came_s) for one in [*flood, *refill]),
    ]
    cases = {"alone": modest, "share": [*modest, *share], "greedy": [*modest, *greedy]}
    figures = {name: _simulate(requests)[0].figures() for name, requests in cases.items()}
    return {"cases": figures, "moved": moved(figures)}


def _equal(tenant: str, per_s: float, span_s: float, seed: int) -> list[WorkloadRequest]:
    """Requests of the live half's lengths, at random times."""
    draw, at_s, found = Random(seed), 0.0, list[WorkloadRequest]()
    while (at_s := at_s + draw.expovariate(per_s)) < span_s:
        found.append(WorkloadRequest(at_s, "mistral-7b", "interactive", NUM_PROMPT_TOKENS, NUM_TOKENS, tenant))
    return found


def simulated_weights(seed: int) -> dict[str, Any]:
    """Tokens of tenants with weights 1 and 3 that both want more than there is, by the time half of it is done."""
    requests = [
        one
        for tenant in (ONE, THREE)
        for one in _drawn(tenant, 4 * SHARE_PER_S, 1_200, "batch-1", seed + (tenant == THREE))
    ]
    simulation = _simulation(requests, {THREE: TenantSpec(weight=3)})
    end_s = 300.0
    while not simulation.run_until(lambda: simulation.now_s > end_s):
        pass
    tokens = dict.fromkeys((ONE, THREE), 0)
    for outcome in simulation.outcomes:
        tokens[outcome.request.tenant] += outcome.num_tokens
    return {"tokens": tokens, "ratio": round(tokens[THREE] / tokens[ONE], 3)}


def _drawn(tenant: str, per_s: float, num: int, slo: str, seed: int) -> list[WorkloadRequest]:
    return [
        replace(one, tenant=tenant)
        for one in PaperWorkload(ONE_MODEL, WeightedNames({slo: 1})).draw(per_s, num, Random(seed))
    ]


def _simulation(requests: Sequence[WorkloadRequest], tenants: dict[str, TenantSpec]) -> Simulation:
    devices = devices_of({"a100": 1}, ["mistral-7b"])
    config = cluster_config(list(devices), ["mistral-7b"], QueueOptions(), NUM_SEQS)
    config = config.model_copy(update={"tenants": tenants})
    return Simulation(Scenario(config, devices, sorted(requests, key=lambda one: one.arrival_s)))


def _simulate(requests: Sequence[WorkloadRequest]) -> tuple[Times, Simulation]:
    """Until the modest tenant's last answer; what came in the warm-up does not count."""
    simulation = _simulation(requests, {})
    num_modest = sum(one.tenant == MODEST for one in requests)
    over: list[Any] = []

    def is_over() -> bool:
        nonlocal over
        recorded = simulation.recording.outcomes
        if len(recorded) > len(over):
            over = list(recorded)
            num_over: int = sum(one.request.tenant == MODEST for one in over)
            return num_over == num_modest
        return False

    simulation.run_until(is_over)
    times = Times()
    for one in over:
        if one.request.tenant != MODEST or one.request.arrival_s < WARM_UP_S:
            continue
        if one.first_token_s is None or not one.is_answered:
            times.num_failed += 1
            continue
        times.ttft_s.append(one.first_token_s - one.sent_s)
        times.e2e_s.append(one.finished_s - one.sent_s)
    return times, simulation
