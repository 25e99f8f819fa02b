"""The live half of `greedy_tenant.py`: a gateway, Redis, services and a predicted node."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

sys.path.append(str(Path(__file__).with_name("qlm")))

from greedy_times import GREEDY, MODEST, MODEST_PER_S, NUM_SEQS, ONE, THREE, TIMES, Times, moved
from live_cluster import running
from load.insisting import body

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE

SHARE_CLIENTS = NUM_SEQS // 2
WARM_UP_S = 5.0
CLIENTS = Path(__file__).with_name("load") / "insisting.py"
MAX_LOOKS = 180  # a second apart, until all clients of a crowd have asked
WEIGHT_CLIENTS, WEIGHT_SECONDS = 64, 30.0


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


class ModestClient:
    """The tenant whose times are measured."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._draw = Random(0)

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
        """It asks at random times."""
        times = Times()
        until_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as asking:
            while time.monotonic() < until_s:
                asking.create_task(self._ask(times))
                await asyncio.sleep(self._draw.expovariate(MODEST_PER_S))
        return times

    async def _ask(self, times: Times) -> None:
        headers = {"Authorization": f"Bearer key-{MODEST}"}
        asked = body(self._draw, stream=True)
        began_s, first_s = time.perf_counter(), None
        async with self._session.post(f"{self._url}/v1/completions", json=asked, headers=headers) as response:
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


@dataclass
class Told:
    """What a crowd's clients were told while it was measured."""

    tokens: dict[str, int] = field(default_factory=dict)
    """Of complete answers, by tenant."""
    num_refused: int = 0

    @classmethod
    def within(cls, crowd: dict[str, Any], from_s: float, until_s: float) -> Told:
        """Of all that it was told."""
        answers = {
            tenant: [one for one in told["answers"] if from_s <= one[0] < until_s] for tenant, told in crowd.items()
        }
        refusals = [at_s for told in crowd.values() for at_s in told["refusals"] if from_s <= at_s < until_s]
        return cls({tenant: sum(num for _, num in ones) for tenant, ones in answers.items()}, len(refusals))


class GatewayLog:
    """Times to the first token as the gateway saw them: from a request's header to its first token's message."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._num_read = 0

    def ttft_s(self, tenant: str) -> list[float]:
        """Of the tenant's answers since this was asked last."""
        with self._file.open("rb") as log:
            log.seek(self._num_read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._num_read += len(whole)
        lines = [json.loads(line) for line in whole.splitlines() if b'"request_finished"' in line]
        return [line["ttft_s"] for line in lines if line["tenant"] == tenant and line["outcome"] == "ok"]


@dataclass
class LiveCase:
    """One case over all rounds."""

    num_clients: int
    times: Times = field(default_factory=Times)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    gateway_ttft_s: list[float] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Of all rounds together, and of each, which shows how much chance there is in them."""
        of_gateway = Times(self.gateway_ttft_s, self.gateway_ttft_s).figures()
        return self.times.figures() | {
            "gateway_ttft_p50_s": of_gateway["ttft_p50_s"],
            "gateway_ttft_p99_s": of_gateway["ttft_p99_s"],
            "ttft_p99_s_by_round": [one["ttft_p99_s"] for one in self.rounds],
            "greedy_tokens": sum(one.tokens.get(GREEDY, 0) for one in self.told),
            "greedy_refusals": sum(one.num_refused for one in self.told),
        }


class LiveSession:
    """One cluster, and crowds that come and go beside a modest tenant."""

    def __init__(self, client: ModestClient, url: str, log: GatewayLog) -> None:
        self._client = client
        self._url = url
        self._log = log

    async def weights(self, seconds: float) -> dict[str, Any]:
        """Tokens of two tenants that both want more than there is."""
        async with self._crowd([ONE, THREE], WEIGHT_CLIENTS) as crowd:
            from_s = time.monotonic()
            await asyncio.sleep(seconds)
            told = Told.within(await crowd(), from_s, time.monotonic())
        return {"tokens": told.tokens, "ratio": round(told.tokens[THREE] / told.tokens[ONE], 3)}

    async def round(self, case: LiveCase, seconds: float) -> None:
        """The modest tenant beside so many of the greedy one's clients."""
        async with self._crowd([GREEDY], case.num_clients) as crowd:
            self._log.ttft_s(MODEST)
            from_s = time.monotonic()
            times = await self._client.measure(seconds)
            case.told.append(Told.within(await crowd(), from_s, time.monotonic()))
        case.rounds.append(times.figures())
        case.gateway_ttft_s += self._log.ttft_s(MODEST)
        case.times.ttft_s += times.ttft_s
        case.times.e2e_s += times.e2e_s
        case.times.num_failed += times.num_failed

    @asynccontextmanager
    async def _crowd(
        self, tenants: list[str], num_clients: int
    ) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """Clients that are all in, until it is left or asked what they were told."""
        argv = [str(CLIENTS), "--url", self._url, "--clients", str(num_clients), "--big", "--tenants", *tenants]
        process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=asyncio.subprocess.PIPE)

        async def told() -> dict[str, Any]:
            process.terminate()
            out, _ = await process.communicate()
            found: dict[str, Any] = json.loads(out)
            return found

        try:
            for tenant in tenants:
                await self._client.until_all_are_in(tenant, num_clients)
            await asyncio.sleep(WARM_UP_S)
            yield told
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _live(url: str, log: GatewayLog, seconds: float, num_rounds: int) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=600)
    cases = {"alone": 0, "share": SHARE_CLIENTS, "greedy": TIMES * SHARE_CLIENTS}
    live_cases = {name: LiveCase(num) for name, num in cases.items()}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        live_session = LiveSession(ModestClient(session, url), url, log)
        weights = await live_session.weights(min(seconds, WEIGHT_SECONDS))
        for _ in range(num_rounds):
            for case in live_cases.values():
                await live_session.round(case, seconds)
    figures = {name: case.figures() for name, case in live_cases.items()}
    return {"cases": figures, "moved": moved(figures), "weights_1_3": weights}


def live(seconds: float, num_rounds: int) -> dict[str, Any]:
    """All live cases on one cluster, by turns."""
    with running(live_config(), {}) as cluster:
        log = GatewayLog(Path(cluster.config["data_dir"]) / "logs" / "gateway.log")
        return asyncio.run(_live(cluster.url, log, seconds, num_rounds))
