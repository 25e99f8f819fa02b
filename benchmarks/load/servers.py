"""Processes of a measurement, each on the core that it is given: Redis, a gateway with a cluster behind, a peer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.process_plan import GATEWAY, process_environment, process_plan
from cli.cluster.processes.redis_server import find_server
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE, ClusterConfig

HOST = "127.0.0.1"
HERE = Path(__file__).parent
MODEL = "smollm2"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
FIRST_ADMIN_PORT, NUM_ADMIN_PORTS = 21_000, 11_000  # below those that systems give to clients
PORTS_A_CLUSTER = 64
MAX_REQUESTS_HELD = 8_192


class Served:
    """A server under load."""

    def __init__(self, name: str, url: str, model: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.url = url
        self.model = model
        self._process = psutil.Process(process.pid)

    @property
    def pid(self) -> int:
        """Of the process that listens."""
        return int(self._process.pid)

    @property
    def cpu_s(self) -> float:
        """Processor time so far, in user mode and in the kernel, children included."""
        processes = [self._process, *self._process.children(recursive=True)]
        return float(sum(sum(process.cpu_times()[:2]) for process in processes))

    @property
    def memory_bytes(self) -> int:
        """Held alone, children included."""
        processes = [self._process, *self._process.children(recursive=True)]
        return int(sum(process.memory_full_info().uss for process in processes))


@contextmanager
def started(
    argv: Sequence[str], core: int, environment: dict[str, str] | None = None, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process on one core, ended on leaving."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # inherited; a thread that the process starts later is there too
    try:
        with ExitStack() as stack:
            err = stack.enter_context(log.open("ab")) if log else None  # clients may complain to the terminal
            process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=err)
    finally:
        os.sched_setaffinity(0, own)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)  # a full pipe would keep it from ending
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def redis(folder: Path, core: int) -> Iterator[str]:
    """An empty Redis of its own; its address."""
    port = free_port(HOST)
    argv = [str(find_server()), "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
    with started([*argv, "--dir", str(folder)], core, log=folder / "redis.log"):
        yield f"redis://{HOST}:{port}/0"


@contextmanager
def feeder(
    folder: Path, core: int, url: str, step_s: float, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for the nodes."""
    argv = [sys.executable, str(HERE / "feeder.py"), "--redis", url, "--step-s", str(step_s)]
    with started(argv, core, environment, folder / "feeder.log") as process:
        yield process


@contextmanager
def floor(folder: Path, cores: tuple[int, int], step_s: float) -> Iterator[Served]:
    """The least that a gateway can do, in the place of one, with a Redis and a feeder of its own."""
    port = free_port(HOST)
    with ExitStack() as stack:
        url = stack.enter_context(redis(folder, cores[1]))
        stack.enter_context(feeder(folder, cores[1], url, step_s))
        argv = [sys.executable, str(HERE / "floor.py"), "--redis", url, "--port", str(port)]
        process = stack.enter_context(started(argv, cores[0], log=folder / "floor.log"))
        served = Served("floor", f"http://{HOST}:{port}", MODEL, process)
        wait_until_up(f"{served.url}/readyz", process)
        yield served


@contextmanager
def gateway(
    folder: Path, cores: tuple[int, int], step_s: float, num_nodes: int = 0, *, is_plain: bool = False
) -> Iterator[tuple[Served, subprocess.Popen[bytes] | None]]:
    """A gateway alone on the first core. On the second the feeder, or as many predicted nodes with their services.

    A gateway's step is the feeder's; nodes have a pace of their own. The feeder's process is given too. In a plain one
    no token waits for another.
    """
    options: dict[str, Any] = {"gateway": {"host": HOST, "port": free_port(HOST), "max_inflight": MAX_REQUESTS_HELD}}
    if is_plain:
        options["gateway"]["max_coalesce_s"] = 0
    if num_nodes:
        nodes = [{"name": f"node-{number}", "device": "a100", "executor": "predicted"} for number in range(num_nodes)]
        options |= {"nodes": nodes, "engine": {"max_num_seqs": 256, "step_tokens": 2_048}}
    config = {
        "models": [{"name": MODEL, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 2_048}],
        "admin_port": FIRST_ADMIN_PORT + os.getpid() % NUM_ADMIN_PORTS + is_plain * PORTS_A_CLUSTER,
        "data_dir": str(folder / "data"),
        **options,
    }
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    with ExitStack() as stack:
        url = stack.enter_context(redis(folder, cores[1]))
        environment = process_environment(str(file), url, num_threads=1)
        fed = None if num_nodes else stack.enter_context(feeder(folder, cores[1], url, step_s, environment))
        for spec in process_plan(ClusterConfig.model_validate(config)):
            if spec.name == GATEWAY or num_nodes:
                core = cores[spec.name != GATEWAY]
                argv = list(spec.argv)
                process = stack.enter_context(started(argv, core, environment, folder / f"{spec.name}.log"))
        port = config["gateway"]["port"]  # the gateway is the last of a plan
        served = Served("plain" if is_plain else "treadle", f"http://{HOST}:{port}", MODEL, process)
        wait_until_up(f"{served.url}/readyz", process)
        yield served, fed


@contextmanager
def stub(core: int, step_s: float) -> Iterator[Served]:
    """The OpenAI-compatible stub."""
    port = free_port(HOST)
    argv = [sys.executable, str(HERE / "stub.py"), "--port", str(port), "--step-s", str(step_s)]
    with started(argv, core) as process:
        served = Served("stub", f"http://{HOST}:{port}", "stub", process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not any(one.status == psutil.CONN_LISTEN for one in psutil.Process(process.pid).net_connections()):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the stub did not start")
            time.sleep(0.05)
        yield served


@contextmanager
def litellm(folder: Path, venv: Path, core: int, upstream: Served) -> Iterator[Served]:
    """LiteLLM's proxy with one worker before a server, without a database and without keys."""
    params = {"model": "openai/stub", "api_base": f"{upstream.url}/v1", "api_key": "none"}
    file = folder / "litellm.yaml"
    config = {
        "model_list": [{"model_name": MODEL, "litellm_params": params}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},  # the gateway asks for no key either
    }
    file.write_text(yaml.safe_dump(config))
    port = free_port(HOST)
    argv = [str(venv / "bin" / "litellm"), "--config", str(file), "--host", HOST, "--port", str(port)]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with started([*argv, "--num_workers", "1"], core, environment, folder / "litellm.log") as process:
        served = Served("litellm", f"http://{HOST}:{port}", MODEL, process)
        wait_until_up(f"{served.url}/health/liveliness", process)
        yield served


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until it answers 200; `RuntimeError` when it ends or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass  # not yet
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{url} did not come up")
        time.sleep(0.1)


def load(served: Served, core: int, *, requests: int, max_tokens: int, **more: object) -> dict[str, Any]:
    """What the clients of `client.py` saw, with the server's processor time (``cpu_s``) while they were there."""
    argv = [sys.executable, str(HERE / "client.py"), "--url", served.url, "--model", served.model]
    argv += ["--requests", str(requests), "--max-tokens", str(max_tokens)]
    for name, value in more.items():
        argv += [f"--{name}"] if value is True else [] if value is False else [f"--{name}", str(value)]
    before_s = served.cpu_s
    with started(argv, core) as process:
        seen, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the clients of {served.name} failed")
    return {**json.loads(seen), "cpu_s": served.cpu_s - before_s}
