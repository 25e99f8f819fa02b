"""What a crowd gets: 1,500, 3,000 and 4,000 clients at once before one gateway, and more than it takes.

A cluster of its own: six predicted A100 nodes in real time, three models, a real tokenizer. The clients send two
requests each; one of twenty leaves at its first token. Somebody asks the clients' port how it is ten times a second,
each time over a new connection, and the admin port, whose answer decides whether a process is killed; and once a second
how the queue stands. The last level has twice as many clients as the gateway may hold: those who are too many are
refused at once, the others are answered.

    python benchmarks/crowd.py --json
    python benchmarks/crowd.py --levels 3000 --max-tokens 200

Fails where a client got an error below the limit, or /healthz took a second. ``processor_s`` of a level tells who had
the cores: where ``others`` is not near 0, times tell of them as well.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from crowd_clients import HOST, spread

from cli.cluster.processes.ports import free_port, is_free
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE, ClusterConfig, load_config

MODELS = {"chat": "mistral-7b", "code": "llama-3-8b", "long": "vicuna-13b"}
NUM_NODES = 6
REQUESTS_PER_CLIENT = 2
LEAVE_EVERY = 20
NUM_ADMIN_PORTS = NUM_NODES + 8
FIRST_PORT, NUM_PORTS = 20_000, 12_000
LIMIT = 1_000  # `max_inflight` of the last level
OVER_LIMIT = 2_000  # clients of it

PROBE_EVERY_S = 0.1
QUEUE_EVERY_S = 1.0
PROBE_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 240.0

MAX_HEALTHZ_S = 1.0  # a liveness probe of Kubernetes waits for so long
MAX_REFUSAL_S = 2.0  # for who is too many, of 2,000 that come in one instant on two cores that are theirs as well


@dataclass
class Probes:
    """How long answers took; what had none in time counts with the timeout."""

    times_s: list[float] = field(default_factory=list)
    num_failed: int = 0


def free_range(num_ports: int) -> int:
    """The first of consecutive free ports, below those that the kernel gives to clients."""
    while True:
        first = FIRST_PORT + free_port(HOST) % NUM_PORTS
        if all(is_free(HOST, first + number) for number in range(num_ports)):
            return first


class Crowd:
    """A running cluster."""

    def __init__(self, folder: Path, gateway: dict[str, Any]) -> None:
        self._file = folder / "cluster.yaml"
        self._data = folder / "data"
        models = [
            {"name": name, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "predict_as": size}
            for name, size in MODELS.items()
        ]
        nodes = [{"name": f"node-{n}", "executor": "predicted", "device": "a100"} for n in range(NUM_NODES)]
        port = free_range(1 + NUM_ADMIN_PORTS)
        config = {
            "gateway": {"port": port, **gateway},
            "admin_port": port + 1,
            "data_dir": str(self._data),
            "models": models,
            "nodes": nodes,
        }
        self._file.write_text(yaml.safe_dump(config))
        self.config: ClusterConfig = load_config(self._file)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Up inside."""
        self._treadle("up")
        try:
            yield
        finally:
            self._treadle("down")

    def gateway(self) -> psutil.Process:
        """Its process."""
        record = json.loads((self._data / "run" / "cluster.json").read_text())
        return psutil.Process(record["processes"]["gateway"]["pid"])

    def processor_s(self) -> float:
        """What all of its processes have used so far, engines too."""
        record = json.loads((self._data / "run" / "cluster.json").read_text())
        return sum(used_s(psutil.Process(one["pid"])) for one in record["processes"].values())

    def log_lines(self, event: str) -> int:
        """How often the gateway has logged an event."""
        return sum(file.read_text().count(f'"{event}"') for file in (self._data / "logs").glob("gateway*.log*"))

    def wait_idle(self) -> bool:
        """Whether the queue manager has nothing left of any request, in time."""
        deadline = time.monotonic() + IDLE_TIMEOUT_S
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection(
                HOST, self.config.admin_port_of("queue-manager"), timeout=PROBE_TIMEOUT_S
            )
            connection.request("GET", "/status")
            if json.loads(connection.getresponse().read())["num_requests"] == 0:
                return True
            time.sleep(QUEUE_EVERY_S)
        return False

    def _treadle(self, command: str) -> None:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("treadle")), command, "-f", str(self._file)],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"treadle {command}: {done.stderr}")


def used_s(process: psutil.Process) -> float:
    """Processor time of a process and of those that it has started, so far."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def machine_s() -> float:
    """Processor time that everybody on this machine has used so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


async def probe(port: int, path: str, every_s: float, probes: Probes) -> None:
    """Ask at a fixed rate, whatever comes of it, each time as somebody new; until cancelled."""

    async def ask() -> None:
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                head = await reader.read()
                writer.close()
            probes.num_failed += not head.startswith(b"HTTP/1.1 200 ")
        except (OSError, TimeoutError):
            probes.num_failed += 1
        probes.times_s.append(time.perf_counter() - began_s)

    asked: set[asyncio.Task[None]] = set()
    try:
        while True:
            task = asyncio.create_task(ask())
            asked.add(task)
            task.add_done_callback(asked.discard)
            await asyncio.sleep(every_s)
    finally:
        await asyncio.gather(*asked)


async def measure(crowd: Crowd, options: argparse.Namespace, clients: int, requests: int, leave: int) -> dict[str, Any]:
    """One level: clients in a process of their own, probes in this one."""
    port = crowd.config.gateway.port
    arguments = {
        "port": port,
        "clients": clients,
        "requests": requests,
        "max-tokens": options.max_tokens,
        "leave-every": leave,
    }
    command = [sys.executable, str(Path(__file__).with_name("crowd_clients.py")), "--models", *MODELS]
    command += [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    gateway = crowd.gateway()
    failed_before = crowd.log_lines("release_failed")
    before = [used_s(gateway), crowd.processor_s(), time.process_time(), machine_s()]
    healthz, queue, admin = Probes(), Probes(), Probes()
    asking = [
        asyncio.create_task(probe(crowd.config.admin_port_of("gateway"), "/healthz", PROBE_EVERY_S, admin)),
        asyncio.create_task(probe(port, "/healthz", PROBE_EVERY_S, healthz)),
        asyncio.create_task(probe(port, "/v1/queue", QUEUE_EVERY_S, queue)),
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    if process.returncode:
        raise RuntimeError("the clients failed")
    after = [used_s(gateway), crowd.processor_s(), time.process_time(), machine_s()]
    of_gateway, of_cluster, of_probes, of_all = (late - early for late, early in zip(after, before, strict=True))
    clients_found = json.loads(output)
    of_clients = clients_found.pop("processor_s") + of_probes
    is_idle = await asyncio.to_thread(crowd.wait_idle)
    return {
        "clients": clients,
        "requests": requests,
        "max_inflight": crowd.config.gateway.max_inflight,
        **clients_found,
        "healthz_s": {**spread(healthz.times_s), "num": len(healthz.times_s), "failed": healthz.num_failed},
        "admin_healthz_s": {**spread(admin.times_s), "num": len(admin.times_s), "failed": admin.num_failed},
        "queue_s": {**spread(queue.times_s), "num": len(queue.times_s), "failed": queue.num_failed},
        "cancels": {
            "all_told": is_idle,
            "failed_once": crowd.log_lines("release_failed") - failed_before,
            "given_up": crowd.log_lines("release_given_up"),
        },
        "processor_s": {
            "gateway": round(of_gateway, 1),
            "cluster": round(of_cluster, 1),
            "clients": round(of_clients, 1),
            "others": round(of_all - of_cluster - of_clients, 1),
        },
        "gateway_rss_mib": round(gateway.memory_info().rss / (1 << 20)),
    }


def problems(level: dict[str, Any]) -> list[str]:
    """What breaks the bars."""
    found = []
    outcomes = dict(level["outcomes"])
    num_fine = outcomes.pop("answered", 0) + outcomes.pop("left", 0)
    if level["clients"] > level["max_inflight"]:
        outcomes.pop("429", None)
        if num_fine < level["max_inflight"]:  # more of them where answers end while others still come
            found.append(f"{num_fine} answered, and {level['max_inflight']} fit")
        if level["refused_s"].get("max", 0.0) > MAX_REFUSAL_S:
            found.append(f"refused after up to {level['refused_s']['max']} s")
        if level["num_without_retry_after"]:
            found.append("a 429 had no Retry-After")
    if outcomes:
        found.append(f"errors: {outcomes}")
    if level["healthz_s"]["max"] >= MAX_HEALTHZ_S or level["healthz_s"]["failed"]:
        found.append(f"/healthz took up to {level['healthz_s']['max']} s, {level['healthz_s']['failed']} failed")
    if level["admin_healthz_s"]["max"] >= MAX_HEALTHZ_S or level["admin_healthz_s"]["failed"]:
        found.append(f"the admin port's /healthz took up to {level['admin_healthz_s']['max']} s")
    if not level["cancels"]["all_told"] or level["cancels"]["given_up"]:
        found.append("not all cancels were told")
    return [f"{level['clients']} clients: {problem}" for problem in found]


def run_levels(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The levels below the limit on one cluster, the one above on another."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder), {})
        with crowd.running():
            for clients in options.levels:
                number = clients * REQUESTS_PER_CLIENT
                found.append(asyncio.run(measure(crowd, options, clients, number, LEAVE_EVERY)))
                show(found[-1], options)
    if not options.skip_limit:
        with tempfile.TemporaryDirectory() as folder:
            crowd = Crowd(Path(folder), {"max_inflight": LIMIT})
            with crowd.running():
                found.append(asyncio.run(measure(crowd, options, OVER_LIMIT, OVER_LIMIT, 0)))
                show(found[-1], options)
    return found


def show(level: dict[str, Any], options: argparse.Namespace) -> None:
    """A level as it is known."""
    stream = sys.stderr if options.json else sys.stdout
    print(json.dumps(level, indent=None if options.json else 2), file=stream, flush=True)


def main() -> None:
    """Parse, measure, print; status 1 where a bar is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, nargs="*", default=[1_500, 3_000, 4_000], help="clients at a time")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--skip-limit", action="store_true", help="without the level above max_inflight")
    parser.add_argument("--json", action="store_true", help="one line on stdout, levels on stderr as they are done")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    levels = run_levels(options)
    broken = [problem for level in levels for problem in problems(level)]
    if options.json:
        print(json.dumps({"levels": levels, "problems": broken}))
    for problem in broken:
        print(problem, file=sys.stderr)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
