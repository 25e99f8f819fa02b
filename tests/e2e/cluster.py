"""A whole cluster of its own, driven as an operator drives it: the `treadle` command, URLs, and recorded pids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil
import yaml
from redis import Redis

from cli.cluster.processes.ports import free_port
from shared.config.config import ADMIN_SERVICES, BATCHES
from tests.gateway.tiny import write_model
from tests.ports import free_port_range

HOST = "127.0.0.1"
COMMAND_TIMEOUT_S = 240  # a busy machine takes long to read weights
PROBE_TIMEOUT_S = 10
WAIT_S = 150.0
POLL_S, MAX_POLL_S = 0.05, 0.25
POLLED_SHARE = 20
"""Looks are so much shorter apart than what has been waited: each takes processors from what is waited for."""
TAIL_LINES = 30
NUM_SERVICES = 4  # with admin ports of their own, before the nodes

T = TypeVar("T")


def wait_for(what: str, find: Callable[[], T], timeout_s: float = WAIT_S) -> T:
    """Poll until ``find`` answers something true; fails with ``what`` when it has not in time."""
    began_s = time.monotonic()
    while not (found := find()):
        if time.monotonic() - began_s > timeout_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(poll_s(began_s))
    return found


def poll_s(began_s: float) -> float:
    """How long to wait between two looks, of a wait that began then."""
    return min(max(POLL_S, (time.monotonic() - began_s) / POLLED_SHARE), MAX_POLL_S)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Cluster:
    """A cluster in a folder. Nothing is known of it but its configuration, its pid records and what it answers."""

    folder: Path
    config: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, folder: Path, **config: Any) -> Cluster:
        """Write the configuration, with ports that nobody uses."""
        num_pool_nodes = sum(pool["max_nodes"] for pool in config.get("pools", []))
        num_services = NUM_SERVICES + bool(config.get("batches"))
        admin_port = free_port_range(num_services + len(config["nodes"]) + num_pool_nodes)
        ports = {"gateway": {"port": free_port(HOST)} | config.pop("gateway", {}), "admin_port": admin_port}
        cluster = cls(folder, {**ports, "data_dir": str(folder / "data"), **config})
        cluster.config_file.write_text(yaml.safe_dump(cluster.config, allow_unicode=True))
        return cluster

    @classmethod
    def predicted(cls, folder: Path, **config: Any) -> Cluster:
        """One whose tokens are made up, at the speed of an A10 with Mistral 7B: a vocabulary, and no weights."""
        source = str(write_model(folder / "tiny.gguf", context_length=4096))
        models = [{"name": "chat", "source": source, "max_model_len": 2048, "predict_as": "mistral-7b"}]
        nodes = [{"name": "node-0", "executor": "predicted", "device": "a10"}]
        return cls.create(folder, **{"models": models, "nodes": nodes, **config})

    # --- the command --------------------------------------------------------------------------------------------------

    @property
    def config_file(self) -> Path:
        return self.folder / "cluster.yaml"

    def treadle(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the real command, with nothing of ours in its environment but where the model files are."""
        kept = {
            name: value for name, value in os.environ.items() if name == "TREADLE_MODELS_DIR" or "TREADLE" not in name
        }
        return subprocess.run(
            [str(Path(sys.executable).with_name("treadle")), *arguments, "-f", str(self.config_file)],
            cwd=self.folder,
            env=kept | self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )

    def up(self) -> str:
        """Start what is missing; what the command says about it."""
        done = self.treadle("up")
        assert done.returncode == 0, done.stderr + self.log_tails()
        return done.stderr

    def down(self) -> None:
        done = self.treadle("down")
        assert done.returncode == 0, done.stderr + self.log_tails()

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Up inside of the block; behind it nothing runs any more."""
        try:
            self.up()
            yield self
        finally:
            self.down()
        assert self.members() == []

    # --- processes ----------------------------------------------------------------------------------------------------

    @property
    def record(self) -> dict[str, Any]:
        """What the command remembers of the cluster."""
        path = self.folder / "data" / "run" / "cluster.json"
        record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"processes": {}}
        return record

    def pids(self) -> dict[str, int]:
        return {name: process["pid"] for name, process in self.record["processes"].items()}

    def missing(self) -> list[str]:
        """Recorded processes that have ended."""
        return [name for name, pid in self.pids().items() if not runs(pid)]

    def members(self) -> list[psutil.Process]:
        """Every process that carries this cluster's mark, recorded or not.

        Redis writes its title over its environment; it works in the folder of its data.
        """
        data = self.folder / "data"
        mark = str(data / "run" / "config.yaml")
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get("TREADLE_CONFIG") == mark or process.cwd() == str(data / "redis")
                if is_ours and runs(process.pid):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def kill(self, name: str) -> None:
        """End a process as a crash would, and wait until it is gone."""
        kill(self.pids()[name])

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Stop a process as a hung machine would."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # --- what it answers ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.config['gateway']['port']}"

    @property
    def models(self) -> list[str]:
        return [model["name"] for model in self.config["models"]]

    @property
    def nodes(self) -> list[str]:
        return [node["name"] for node in self.config["nodes"]]

    @property
    def admin_urls(self) -> dict[str, str]:
        """Where each process answers operators."""
        names = [*ADMIN_SERVICES, *([BATCHES] if self.config.get("batches") else []), *self.nodes]
        first = self.config["admin_port"]
        return {name: f"http://{HOST}:{first + number}" for number, name in enumerate(names)}

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Status and body; status 0 when the process does not answer."""
        try:
            with urlopen(self.admin_urls[name] + path, timeout=PROBE_TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (URLError, OSError):
            return 0, ""

    def status(self, name: str) -> dict[str, Any]:
        """What a process says of itself; empty when it does not answer."""
        code, body = self.get(name, "/status")
        status: dict[str, Any] = json.loads(body) if code == 200 else {}
        return status

    def metric(self, name: str, metric: str, **labels: str) -> float:
        """Sum of a metric's samples, over all labels that are not given."""
        _, body = self.get(name, "/metrics")
        chosen = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in body.splitlines() if line.startswith((f"{metric}{{", f"{metric} "))]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in chosen))

    def output_tokens(self) -> float:
        """Tokens that the living nodes have made so far."""
        return sum(self.metric(node, "treadle_node_output_tokens_total") for node in self.nodes)

    @contextmanager
    def redis(self) -> Iterator[Redis]:
        with Redis(host=HOST, port=self.record["redis_port"]) as client:
            yield client

    def remains(self, *, is_told: bool = True) -> list[str]:
        """What a cluster that has nothing to do must not hold any more.

        ``is_told``: nor may the KV manager believe it, which hears of memory once a second.
        """
        found = [f"queue manager: {self.status('queue-manager')}"] if self._has_requests() else []
        for name in self.nodes:
            node = self.status(name)
            idle = node.get("num_running") == node.get("num_waiting") == 0 and not node.get("loading")
            if not idle or node["num_free_blocks"] != node["num_blocks"]:
                found.append(f"{name}: {node}")
        if is_told:
            memory = self.status("kv-manager").get("nodes", {})
            if sorted(memory) != sorted(self.nodes) or any(node["num_used_blocks"] for node in memory.values()):
                found.append(f"kv manager: {memory}")
        with self.redis() as redis:
            keys = [
                key for kind in ("req", "pictures", "group") for key in redis.scan_iter(f"treadle:{kind}:*", count=1000)
            ]
            num_workers = self.config["gateway"].get("workers", 1)
            keys += list(redis.scan_iter("treadle:tokens:*"))[num_workers:]  # each living one has its own
        return found + [key.decode() for key in keys]

    def _has_requests(self) -> bool:
        return self.status("queue-manager").get("num_requests") != 0 or self.status("gateway").get("inflight") != 0

    def wait_idle(self, timeout_s: float = WAIT_S, *, is_told: bool = True) -> None:
        """Until nothing is left of any request: in no process, no block of memory, no key."""
        began_s = time.monotonic()
        while remains := self.remains(is_told=is_told):
            assert time.monotonic() - began_s < timeout_s, f"after {timeout_s:g} s there are still: {remains}"
            time.sleep(poll_s(began_s))

    # --- logs ---------------------------------------------------------------------------------------------------------

    def logs(self) -> dict[str, str]:
        """Text of each process's log; Redis keeps its own format and is left out."""
        files = (self.folder / "data" / "logs").glob("*.log*")
        return {file.name: file.read_text() for file in files if not file.name.startswith("redis.")}

    def log_tails(self) -> str:
        texts = {name: text.splitlines()[-TAIL_LINES:] for name, text in self.logs().items()}
        return "".join(f"\n--- {name}\n" + "\n".join(lines) for name, lines in texts.items()) + "\n"


def kill(pid: int) -> None:
    """SIGKILL, and wait for the end."""
    os.kill(pid, signal.SIGKILL)
    wait_for(f"the end of process {pid}", lambda: not runs(pid))
