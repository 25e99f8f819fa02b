"""How long the cluster has no leader after ``kill -9`` of its queue manager, by the length of the queue.

A real Redis and real queue manager processes. ``--queued`` requests wait at ``--nodes`` nodes; more come and as many
leave, ``--rate`` a second each, also while nobody leads. The leader is killed ``--kills`` times with a standby beside
it (which takes over) and as often without (its supervisor starts it again at once); ``leader_s`` is the longest time
from a kill to the first commit of the next leader.

    python benchmarks/rebuild.py --queued 20000 --json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import yaml
from redis import Redis
from redis.exceptions import RedisError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.redis_server import find_server
from shared.bus import streams
from shared.config.config import ADMIN_PORT_ENV, CONFIG_ENV, INSTANCE_ENV, REDIS_ENV, load_config
from shared.messages.codec import FIELD, encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Cancel, GatewayBeat, Submit
from shared.messages.requests.slo import Slo

HOST = "127.0.0.1"
SERVICE = "queue-manager"
MODELS = ("model-a", "model-b", "model-c", "model-d")
CLASSES = (Slo("interactive", deadline_s=20), Slo("batch-1", deadline_s=60), Slo("batch-2", deadline_s=3600))
COST = StepCost(step_s=0.02, token_s=5e-5, context_token_s=1e-8)
GATEWAY = "bench"
BEAT_S = 1.0
PIECE = 2_000  # requests that are submitted ahead of the queue manager
POLL_S = 0.005
PATIENCE_S = 300.0
REDIS_TIMEOUT_S = 60.0  # a disk that is slow to take a large snapshot holds Redis up
SETTLE_S = 3.0  # between two kills, for logs that differ


class Cluster:
    """Redis, and queue managers by the names of their instances."""

    def __init__(self, folder: Path, num_nodes: int) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = free_port(HOST)
        options = {
            "port": port,
            "bind": HOST,
            "dir": folder,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
        }
        command = [str(find_server()), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"redis://{HOST}:{port}/0"
        self.redis = Redis.from_url(self.url, socket_timeout=REDIS_TIMEOUT_S)
        wait_for(self._answers)
        config = {"nodes": [{"name": f"node-{number}"} for number in range(num_nodes)]}
        (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
        load_config(folder / "cluster.yaml")

    def _answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except RedisError:
            return False

    def start(self, instance: str) -> None:
        """Begin a queue manager."""
        environment = os.environ | {
            CONFIG_ENV: str(self._folder / "cluster.yaml"),
            REDIS_ENV: self.url,
            INSTANCE_ENV: instance,
            ADMIN_PORT_ENV: str(free_port(HOST)),
        }
        with (self._folder / f"{instance}.log").open("ab") as log:
            self._processes[instance] = subprocess.Popen(
                [sys.executable, "-m", "services.queue_manager"], env=environment, stderr=log, stdout=log
            )

    def kill(self, instance: str) -> None:
        """``kill -9``."""
        process = self._processes.pop(instance)
        process.kill()
        process.wait()

    def holder(self) -> bytes:
        """Who leads, in which term."""
        return cast("bytes | None", self.redis.get(streams.lease(SERVICE))) or b""

    def committed(self) -> bytes:
        """How far the inbox has been handled."""
        return self.state("committed") or b"0-0"

    def state(self, field: str) -> bytes | None:
        """What the service keeps of itself under this name."""
        return cast("bytes | None", self.redis.hget(streams.state(SERVICE), field))

    def inbox(self, behind: bytes = b"") -> list[bytes]:
        """Ids of the inbox's entries."""
        first = b"(" + behind if behind else b"-"
        entries = cast("list[tuple[bytes, Any]]", self.redis.xrange(streams.QUEUE, min=first))
        return [entry_id for entry_id, _ in entries]

    def newest(self) -> bytes:
        """Id of the last one."""
        [(entry_id, _)] = cast("list[tuple[bytes, Any]]", self.redis.xrevrange(streams.QUEUE, count=1))
        return entry_id

    def close(self) -> None:
        """End everything."""
        for instance in list(self._processes):
            self.kill(instance)
        self.redis.close()
        self._server.kill()
        self._server.wait()


def wait_for(condition: object) -> None:
    """Poll until it holds."""
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("not in time")
        time.sleep(POLL_S)


class Traffic:
    """Requests that come, and clients that leave: the queue keeps its length."""

    def __init__(self, redis: Redis, seed: int) -> None:
        self._redis = redis
        self._draw = random.Random(seed)
        self._waiting: deque[str] = deque()

    def say(self, *messages: Message) -> None:
        """Append to the queue manager's inbox."""
        with self._redis.pipeline(transaction=False) as pipe:
            for message in messages:
                pipe.xadd(streams.QUEUE, {FIELD: encode(message)})
            pipe.execute()

    def nodes(self, num_nodes: int) -> None:
        """Nodes that serve, and pull nothing."""
        rates = [ModelRate(one, COST, kv_tokens=200_000, kv_token_bytes=131_072, load_s=5.0) for one in MODELS]
        for number in range(num_nodes):
            model = MODELS[number % len(MODELS)]
            name = f"node-{number}"
            self.say(NodeUp(epoch="1", known=NodeState(name, model, max_num_seqs=256, step_tokens=2048, rates=rates)))

    def submit(self, num_requests: int) -> None:
        """So many more wait."""
        messages: list[Message] = [self._submit() for _ in range(num_requests)]
        self.say(*messages)

    def _submit(self) -> Submit:
        draw = self._draw
        request_id = f"{draw.getrandbits(128):032x}"
        self._waiting.append(request_id)
        return Submit(
            request_id=request_id,
            gateway=GATEWAY,
            model=draw.choice(MODELS),
            slo=draw.choice(CLASSES),
            prompt_tokens=min(100_000, 1 + int(draw.lognormvariate(5, 1.2))),
            max_tokens=draw.choice((64, 256, 512, 1024)),
            tenant=f"tenant-{draw.randrange(8)}",
        )

    @contextmanager
    def flowing(self, rate: float) -> Iterator[None]:
        """``rate`` come and as many leave each second; the gateway lives."""
        stopped = Event()

        def flow() -> None:
            num_ticks = 0
            while not stopped.wait(0.05):
                number = max(1, round(rate * 0.05))
                self.submit(number)
                self.say(*(Cancel(request_id=self._waiting.popleft()) for _ in range(number)))
                num_ticks += 1
                if num_ticks % int(BEAT_S / 0.05) == 0:
                    self.say(GatewayBeat(gateway=GATEWAY))

        thread = Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def fill(cluster: Cluster, traffic: Traffic, num_requests: int, progress: Progress) -> None:
    """Have the queue manager accept so many."""
    task = progress.add_task("fill", total=num_requests)
    for first in range(0, num_requests, PIECE):
        number = min(PIECE, num_requests - first)
        traffic.submit(number)
        newest = cluster.newest()
        wait_for(lambda newest=newest: _order(cluster.committed()) >= _order(newest))
        progress.advance(task, number)


def _order(entry_id: bytes) -> tuple[int, int]:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number)


def time_to_lead(cluster: Cluster, instance: str, *, restart: bool) -> dict[str, float]:
    """Kill the leader; seconds until another term has committed something."""
    old = cluster.holder()
    num_entries = len(cluster.inbox(behind=cluster.state("id") or b""))
    began = time.monotonic()
    cluster.kill(instance)
    if restart:
        cluster.start(instance)
    wait_for(lambda: cluster.holder() not in (old, b""))
    taken_s = time.monotonic() - began
    before = cluster.committed()
    wait_for(lambda: cluster.committed() != before)
    return {
        "leader_s": round(time.monotonic() - began, 3),
        "lease_s": round(taken_s, 3),
        "entries_to_replay": num_entries,
    }


def measure(arguments: argparse.Namespace, folder: Path, progress: Progress) -> dict[str, object]:
    """Fill a queue, kill, and kill again."""
    with ExitStack() as stack:
        cluster = Cluster(folder, arguments.nodes)
        stack.callback(cluster.close)
        cluster.start("a")
        traffic = Traffic(cluster.redis, arguments.seed)
        traffic.nodes(arguments.nodes)
        fill(cluster, traffic, arguments.queued, progress)
        stack.enter_context(traffic.flowing(arguments.rate))
        restarts, takeovers = [], []
        for _ in progress.track(range(arguments.kills), description="kill, restart"):
            time.sleep(SETTLE_S)
            restarts.append(time_to_lead(cluster, "a", restart=True))
        leader, standby = "a", "b"
        for _ in progress.track(range(arguments.kills), description="kill, standby"):
            cluster.start(standby)
            time.sleep(SETTLE_S)
            takeovers.append(time_to_lead(cluster, leader, restart=False))
            leader, standby = standby, leader
        return {
            "queued": arguments.queued,
            "nodes": arguments.nodes,
            "rate": arguments.rate,
            "leader_s": max(one["leader_s"] for one in restarts + takeovers),
            "restarted": restarts,
            "standby": takeovers,
            "snapshot_bytes": cluster.redis.hstrlen(streams.state(SERVICE), "state"),
        }


def main() -> None:
    """Print one object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=20_000, help="requests that wait")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rate", type=float, default=100.0, help="requests that come, and that leave, a second")
    parser.add_argument("--kills", type=int, default=3, help="of each sort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one line instead of several")
    arguments = parser.parse_args()
    if min(arguments.queued, arguments.nodes, arguments.kills) < 1:
        parser.error("--queued, --nodes and --kills must be at least 1")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        result = measure(arguments, Path(folder), progress)
    print(json.dumps(result, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
