"""What hostile clients take from honest ones: a real gateway process, before and while it is attacked.

A cluster of its own: one predicted node in real time, a real tokenizer. All the time one client streams answers and
somebody asks for /healthz. Then come clients that send half a header (500), nothing (500), a body in drops (50), or do
not read their answers (5 of six megabytes); and, one kind after the other, bodies that are made to cost as much as they
can. At the end all time-outs are awaited: who is still connected then, but for the honest, is held for nothing.

    python benchmarks/hostile.py --json

Prints the lag of the gateway's event loop for each kind (from its own metric, so to the borders of its buckets), how
much of the time it had no core because others had them all, and, to compare with, the same without any attack. Fails
where the loop was later than 50 ms, somebody stayed connected or kept a slot, or an honest client saw an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from hostile_bodies import BODIES, TEXT
from hostile_clients import HOST, Attack, connect, drip, half_sent, silent, unread
from prometheus_client.parser import text_string_to_metric_families

from cli.cluster.processes.ports import free_port, is_free
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE, ClusterConfig, load_config

MAX_LAG_S = 0.05
QUIET_S = 5.0  # measured before the attack
EACH_S = 2.0  # a kind of body is sent for at least so long
SENDERS = 4
NUM_HALF_SENT, NUM_SILENT, NUM_DRIPPING, NUM_UNREAD = 500, 500, 50, 5
TIME_OUTS_S = 66.0  # the longest is that of an answer that nobody reads, and is looked at now and then
PROBE_EVERY_S = 0.1
COMMAND_TIMEOUT_S = 240.0
NUM_PORTS = 8


@dataclass
class Lag:
    """The metric at one time: looks by the upper border of their bucket, in seconds, cumulative."""

    buckets: dict[float, float]

    def since(self, before: Lag) -> dict[str, Any]:
        """What came between: quantiles as borders of buckets, in milliseconds."""
        counts = {border: num - before.buckets[border] for border, num in self.buckets.items()}
        total = counts[float("inf")]

        def border(share: float) -> float | None:
            found = next(one for one, num in counts.items() if num >= share * total)
            return None if found == float("inf") else found * 1e3

        late = total - counts[MAX_LAG_S]
        return {
            "looks": int(total),
            "p50_ms": border(0.5),
            "p99_ms": border(0.99),
            "max_ms": border(1),
            "late": int(late),
        }


@dataclass
class Honest:
    """What honest clients saw."""

    healthz_s: list[float] = field(default_factory=list)
    num_answers: int = 0
    errors: list[str] = field(default_factory=list)


class Cluster:
    """One predicted node behind one gateway."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "cluster.yaml"
        port = _free_range()
        config = {
            "gateway": {"port": port},
            "admin_port": port + 1,
            "data_dir": str(folder / "data"),
            "models": [
                {"name": "chat", "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "predict_as": "mistral-7b"}
            ],
            "nodes": [{"name": "node-0", "executor": "predicted", "device": "a100"}],
        }
        self._file.write_text(yaml.safe_dump(config))
        self.config: ClusterConfig = load_config(self._file)
        self.port = port
        self.url = f"http://{HOST}:{port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Up inside."""
        self._treadle("up")
        try:
            yield
        finally:
            self._treadle("down")

    def waited_s(self) -> float:
        """How long the gateway's event loop could have run and was given no core, since it began."""
        record = json.loads((self.config.data_dir / "run" / "cluster.json").read_text())
        pid = record["processes"]["gateway"]["pid"]
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9

    def metrics_url(self) -> str:
        """Where the gateway tells its metrics."""
        return f"http://{HOST}:{self.config.admin_port_of('gateway')}/metrics"

    def _treadle(self, command: str) -> None:
        treadle = str(Path(sys.executable).with_name("treadle"))
        subprocess.run(
            [treadle, command, "-f", str(self._file)], check=True, timeout=COMMAND_TIMEOUT_S, stdout=sys.stderr
        )


def _free_range() -> int:
    while True:
        first = 20_000 + free_port(HOST) % 12_000
        if all(is_free(HOST, first + number) for number in range(NUM_PORTS)):
            return first


class Bench:
    """One run against a running cluster."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._session = session
        self.honest = Honest()

    async def run(self) -> dict[str, Any]:
        """Everything, in order."""
        honest = [asyncio.create_task(self._stream()), asyncio.create_task(self._probe())]
        results: dict[str, Any] = {"quiet": await self._measured(asyncio.sleep(QUIET_S))}
        attack = Attack()
        began_s = time.monotonic()
        results["connections"] = await self._measured(self._connect(attack))
        results["bodies"] = {name: await self._body(name) for name in BODIES}
        results["while_held"] = await self.held()
        await asyncio.sleep(max(TIME_OUTS_S - (time.monotonic() - began_s), 0.0))
        for task in honest:
            task.cancel()
        await asyncio.gather(*honest, return_exceptions=True)
        await asyncio.sleep(QUIET_S)
        results["after_time_outs"] = await self.held()
        await attack.close()
        times = sorted(self.honest.healthz_s)
        results["healthz_ms"] = {
            "p50": round(times[len(times) // 2] * 1e3, 1),
            "p99": round(times[len(times) * 99 // 100] * 1e3, 1),
            "max": round(times[-1] * 1e3, 1),
        }
        results["honest_answers"], results["honest_errors"] = self.honest.num_answers, self.honest.errors
        return results

    async def held(self) -> dict[str, float]:
        """Connections by state, slots, and why connections were closed."""
        samples = await self._samples()
        wanted = ("treadle_connections", "treadle_inflight_requests", "treadle_closed_connections_total")
        return {
            " ".join([name.removeprefix("treadle_"), *labels.values()]): value
            for name, labels, value in samples
            if name in wanted and value
        }

    async def _connect(self, attack: Attack) -> None:
        port = self._cluster.port
        await asyncio.gather(
            *(half_sent(attack, port) for _ in range(NUM_HALF_SENT)),
            *(silent(attack, port) for _ in range(NUM_SILENT)),
            *(drip(attack, port) for _ in range(NUM_DRIPPING)),
            *(unread(attack, port) for _ in range(NUM_UNREAD)),
        )
        await asyncio.sleep(QUIET_S)

    async def _body(self, name: str) -> dict[str, Any]:
        path, make = BODIES[name]
        data = make()
        times: list[float] = []
        answers: set[str] = set()

        async def send() -> None:
            while time.monotonic() < until_s:
                began_s = time.monotonic()
                try:
                    async with self._session.post(f"{self._cluster.url}{path}", data=data) as response:
                        answer = await response.json()
                    answers.add(f"{response.status} {answer['error']['code'] if 'error' in answer else 'answer'}")
                except aiohttp.ClientError as error:
                    answers.add(type(error).__name__)
                times.append(time.monotonic() - began_s)

        async def send_all() -> None:
            await asyncio.gather(*(send() for _ in range(SENDERS)))

        until_s = time.monotonic() + EACH_S
        lag = await self._measured(send_all())
        times.sort()
        return {
            "answers": sorted(answers),
            "sent": len(times),
            "seconds_p50": round(times[len(times) // 2], 3),
            "seconds_max": round(times[-1], 3),
            "lag": lag,
        }

    async def _measured(self, work: Any) -> dict[str, Any]:
        before, waited_s, began_s = await self._lag(), self._cluster.waited_s(), time.monotonic()
        await work
        waited = (self._cluster.waited_s() - waited_s) / (time.monotonic() - began_s)
        return (await self._lag()).since(before) | {"waited_for_core": round(waited, 3)}

    async def _lag(self) -> Lag:
        samples = await self._samples()
        return Lag(
            {float(of["le"]): num for name, of, num in samples if name == "treadle_event_loop_lag_seconds_bucket"}
        )

    async def _samples(self) -> list[tuple[str, dict[str, str], float]]:
        async with self._session.get(self._cluster.metrics_url()) as response:
            text = await response.text()
        families = text_string_to_metric_families(text)
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    async def _stream(self) -> None:
        body = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 64, "stream": True, "ignore_eos": True}
        while True:
            try:
                async with self._session.post(f"{self._cluster.url}{TEXT}", json=body) as response:
                    text = await response.text()
                if not text.endswith("data: [DONE]\n\n"):
                    self.honest.errors.append(f"stream: {response.status}")
            except aiohttp.ClientError as error:
                self.honest.errors.append(f"stream: {type(error).__name__}")
            self.honest.num_answers += 1

    async def _probe(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                reader, writer = await connect(self._cluster.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                head = await reader.read()
                writer.close()
                if not head.startswith(b"HTTP/1.1 200 "):
                    self.honest.errors.append(f"healthz: {head[:12]!r}")
            except OSError as error:
                self.honest.errors.append(f"healthz: {type(error).__name__}")
            self.honest.healthz_s.append(time.monotonic() - began_s)
            await asyncio.sleep(PROBE_EVERY_S)


def faults(results: dict[str, Any]) -> list[str]:
    """Which bars do not hold."""
    lags = {"connections": results["connections"]} | {name: one["lag"] for name, one in results["bodies"].items()}
    found = [f"{name}: {lag['late']} of {lag['looks']} looks were late" for name, lag in lags.items() if lag["late"]]
    after = results["after_time_outs"]
    # idle ones are those that this benchmark's own session keeps for its next requests
    held = ("connections header", "connections request", "connections refused", "inflight_requests")
    found += [f"held: {name} {after[name]:g}" for name in held if name in after]
    return [*found, *results["honest_errors"]]


async def measure(cluster: Cluster) -> dict[str, Any]:
    """One run."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        return await Bench(cluster, session).run()


def main() -> None:
    """Start, measure, stop, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="treadle-hostile-") as folder:
        cluster = Cluster(Path(folder))
        with cluster.running():
            results = asyncio.run(measure(cluster))
    results["faults"] = faults(results)
    if options.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            rows = value.items() if name == "bodies" else [(name, value)]
            for row, what in rows:
                print(f"{row}: {json.dumps(what)}")
    sys.exit(1 if results["faults"] else 0)


if __name__ == "__main__":
    main()
