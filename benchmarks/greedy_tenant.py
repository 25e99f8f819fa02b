"""What a tenant that asks for 100 times its share does to another one, and how tokens are divided by weight.

    python benchmarks/greedy_tenant.py --json > greedy.json
    python benchmarks/greedy_tenant.py --only simulated --json

Two tenants of equal weight. The modest one asks for a third of its share; its times to first token and end to end are
measured alone, beside a tenant that asks for its share, and beside one that asks for 100 times as much, as far as a
gateway's slots let it. Live there are a real gateway, Redis, queue manager, scheduler and a predicted node (`treadle
up`); a part of the greedy tenant's bodies are large. Then two tenants with weights 1 and 3 want more than there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

sys.path.append(str(Path(__file__).with_name("qlm")))

from live_cluster import running

from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import ONE_MODEL, PaperWorkload
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.queue import QueueOptions, TenantSpec

GREEDY, MODEST, ONE, THREE = "greedy", "modest", "one", "three"
TIMES = 100  # of its share, that the greedy tenant asks for
GOAL = 0.10  # by which the modest one's 99th percentile may move
NUM_SEQS = 32  # of a node, as in the default configuration

# simulated: ShareGPT's lengths on one A100 with Mistral-7B, which answers 6 requests a second
SHARE_PER_S, MODEST_PER_S, MODEST_REQUESTS = 3.0, 1.0, 300
HELD = 4096 * 15 // 16  # requests of one tenant that a gateway holds by default
SIMULATED_WARM_UP_S = 30.0  # both at their share, while lengths and costs are learnt

# live: answers of 64 tokens, so that two minutes have hundreds of them
LIVE_SHARE_CLIENTS = NUM_SEQS // 2
LIVE_MODEST_PER_S, LIVE_SECONDS, LIVE_WARM_UP_S = 3.0, 120.0, 5.0
LIVE_TOKENS, LIVE_PROMPT_TOKENS = 64, 100
BIG_BODY_BYTES, BIG_BODY_EVERY = 1 << 20, 20
MAX_LOOKS = 180  # a second apart, until all clients of a crowd have asked
WEIGHT_CLIENTS, WEIGHT_SECONDS = 64, 30.0


@dataclass
class Times:
    """Of the modest tenant's answers, in seconds."""

    ttft_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)
    num_failed: int = 0

    def figures(self) -> dict[str, Any]:
        """Medians and 99th percentiles."""
        found: dict[str, Any] = {"num": len(self.e2e_s), "num_failed": self.num_failed}
        for name, values in (("ttft", self.ttft_s), ("e2e", self.e2e_s)):
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            found |= {f"{name}_p50_s": round(cuts[49], 4), f"{name}_p99_s": round(cuts[98], 4)}
        return found


def moved(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By how much the greedy tenant moves the modest one's 99th percentiles, as a part of what they are otherwise."""
    greedy = figures["greedy"]
    found: dict[str, Any] = {
        f"{name}_p99_beside_{case}": round(greedy[f"{name}_p99_s"] / figures[case][f"{name}_p99_s"] - 1, 3)
        for name in ("ttft", "e2e")
        for case in ("share", "alone")
    }
    return found | {"is_within_goal": all(found[f"{name}_p99_beside_share"] <= GOAL for name in ("ttft", "e2e"))}


# --- simulated --------------------------------------------------------------------------------------------------------


def simulated(slo: str, seed: int) -> dict[str, Any]:
    """The three cases; ``slo`` is the class that the greedy tenant asks for."""
    span_s = SIMULATED_WARM_UP_S + MODEST_REQUESTS / MODEST_PER_S
    modest = _drawn(MODEST, MODEST_PER_S, int(MODEST_PER_S * span_s), "interactive", seed)
    share = _drawn(GREEDY, SHARE_PER_S, int(SHARE_PER_S * span_s), slo, seed + 1)
    flood = _drawn(GREEDY, TIMES * SHARE_PER_S, HELD, slo, seed + 2)
    refill = _drawn(GREEDY, 2 * SHARE_PER_S, int(2 * SHARE_PER_S * span_s), slo, seed + 3)
    greedy = [
        *(one for one in share if one.arrival_s < SIMULATED_WARM_UP_S),
        *(replace(one, arrival_s=one.arrival_s + SIMULATED_WARM_UP_S) for one in [*flood, *refill]),
    ]
    cases = {"alone": modest, "share": [*modest, *share], "greedy": [*modest, *greedy]}
    figures = {name: _simulate(requests)[0].figures() for name, requests in cases.items()}
    return {"cases": figures, "moved": moved(figures)}


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
        if one.request.tenant != MODEST or one.request.arrival_s < SIMULATED_WARM_UP_S:
            continue
        if one.first_token_s is None or not one.is_answered:
            times.num_failed += 1
            continue
        times.ttft_s.append(one.first_token_s - one.sent_s)
        times.e2e_s.append(one.finished_s - one.sent_s)
    return times, simulation


# --- live -------------------------------------------------------------------------------------------------------------


def live_config() -> dict[str, Any]:
    """One predicted A100 with Mistral-7B's costs, and a key a tenant."""
    return {
        "models": [
            {
                "name": "m",
                "source": SMOLLM2_SOURCE,
                "sha256": SMOLLM2_SHA256,
                "max_model_len": 512,
                "predict_as": "mistral-7b",
            }
        ],
        "nodes": [{"name": "node-0", "executor": "predicted", "device": "a100"}],
        "engine": {"max_num_seqs": NUM_SEQS},
        "keys": [{"key": f"key-{tenant}", "tenant": tenant} for tenant in (GREEDY, MODEST, ONE, THREE)],
        "tenants": {THREE: {"weight": 3}},
    }


class LiveClient:
    """Asks one gateway on behalf of tenants."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._draw = Random(0)
        self.tokens: dict[str, int] = {}
        """Of answers that are complete, by tenant."""
        self.num_refused = 0

    def _body(self, *, stream: bool, num_extra: int = 0) -> dict[str, Any]:
        prompt = [self._draw.randrange(1_000, 40_000) for _ in range(LIVE_PROMPT_TOKENS)]
        body = {"model": "m", "prompt": prompt, "max_tokens": LIVE_TOKENS, "ignore_eos": True, "stream": stream}
        return body | ({"user": "x" * num_extra} if num_extra else {})

    async def insist(self, tenant: str, number: int) -> None:
        """One after the other, for ever; whoever is told to come again later does."""
        headers = {"Authorization": f"Bearer key-{tenant}"}
        is_big = tenant == GREEDY and number % BIG_BODY_EVERY == 0
        while True:
            body = self._body(stream=False, num_extra=BIG_BODY_BYTES if is_big else 0)
            async with self._session.post(f"{self._url}/v1/completions", json=body, headers=headers) as response:
                if response.status == 200:
                    usage = (await response.json())["usage"]
                    self.tokens[tenant] = self.tokens.get(tenant, 0) + usage["completion_tokens"]
                    continue
                self.num_refused += 1
                retry_s = float(response.headers.get("Retry-After", "1"))
            await asyncio.sleep(retry_s)

    async def until_all_are_in(self, tenant: str, num: int) -> None:
        """Until so many of its requests wait or run: what is measured is a crowd that is there, not its coming."""
        headers = {"Authorization": f"Bearer key-{tenant}"}
        for _ in range(MAX_LOOKS):
            async with self._session.get(f"{self._url}/v1/queue", headers=headers) as response:
                lines = (await response.json())["data"]
            if sum(line["num_waiting"] + line["num_running"] for line in lines) >= min(num - NUM_SEQS, 0.9 * num):
                return
            await asyncio.sleep(1.0)
        raise RuntimeError(f"the requests of {tenant} have not come in within {MAX_LOOKS} s")

    async def measure(self, seconds: float) -> Times:
        """The modest tenant asks at random times."""
        times = Times()
        until_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as asking:
            while time.monotonic() < until_s:
                asking.create_task(self._ask(times))
                await asyncio.sleep(self._draw.expovariate(LIVE_MODEST_PER_S))
        return times

    async def _ask(self, times: Times) -> None:
        headers = {"Authorization": f"Bearer key-{MODEST}"}
        began_s, first_s = time.perf_counter(), None
        async with self._session.post(
            f"{self._url}/v1/completions", json=self._body(stream=True), headers=headers
        ) as response:
            is_whole = False
            async for line in response.content:
                if first_s is None and line.startswith(b"data: {"):
                    first_s = time.perf_counter() - began_s
                is_whole |= line.startswith(b"data: [DONE]")
        if response.status != 200 or first_s is None or not is_whole:
            times.num_failed += 1
            return
        times.ttft_s.append(first_s)
        times.e2e_s.append(time.perf_counter() - began_s)


async def _with_crowd(client: LiveClient, crowd: dict[str, int], seconds: float) -> Times | None:
    """Beside so many clients of each tenant: what the modest one sees, or with nobody modest, nothing."""
    tasks = [asyncio.create_task(client.insist(tenant, n)) for tenant, num in crowd.items() for n in range(num)]
    try:
        for tenant, num in crowd.items():
            await client.until_all_are_in(tenant, num)
        await asyncio.sleep(LIVE_WARM_UP_S)
        client.tokens.clear()
        if ONE in crowd:
            await asyncio.sleep(seconds)
            return None
        return await client.measure(seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _live(url: str) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        client = LiveClient(session, url)
        await _with_crowd(client, {ONE: WEIGHT_CLIENTS, THREE: WEIGHT_CLIENTS}, WEIGHT_SECONDS)
        tokens = dict(client.tokens)
        figures = {}
        for case, num in (("alone", 0), ("share", LIVE_SHARE_CLIENTS), ("greedy", TIMES * LIVE_SHARE_CLIENTS)):
            client.num_refused = 0
            times = await _with_crowd(client, {GREEDY: num}, LIVE_SECONDS)
            assert times is not None
            figures[case] = times.figures() | {
                "greedy_tokens": client.tokens.get(GREEDY, 0),
                "greedy_refusals": client.num_refused,
            }
    weights = {"tokens": tokens, "ratio": round(tokens[THREE] / tokens[ONE], 3)}
    return {"cases": figures, "moved": moved(figures), "weights_1_3": weights}


def live() -> dict[str, Any]:
    """All live cases on one cluster."""
    with running(live_config(), {}) as cluster:
        return asyncio.run(_live(cluster.url))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("simulated", "live"), help="half of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    args = parser.parse_args()
    result: dict[str, Any] = {"goal": GOAL, "times": TIMES}
    if args.only != "live":
        result["simulated"] = {f"greedy_{slo}": simulated(slo, args.seed) for slo in ("interactive", "batch-1")} | {
            "weights_1_3": simulated_weights(args.seed)
        }
    if args.only != "simulated":
        result["live"] = live()
    print(json.dumps(result) if args.json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
