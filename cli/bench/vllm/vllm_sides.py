"""What `treadle bench vllm` asks: vLLM alone, the same vLLM behind a whole cluster, and behind the engine process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import yaml

from cli.cluster.processes.ports import free_port
from cli.errors import ClusterError
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.protocol import (
    Command,
    EngineEvent,
    EngineReady,
    EngineRefused,
    LoadModel,
    ModelLoaded,
    Shutdown,
    StepReport,
)
from shared.config.config import CONFIG_ENV

HOST = "127.0.0.1"
NODE, MODEL, OTHER = "node-0", "bench", "other"
NUM_ADMIN_PORTS = 5
FIRST_ADMIN_PORT, LAST_ADMIN_PORT = 21_000, 32_000  # below those that systems give to clients
UP_S = 400
WAIT_S = 600.0
END_S = 60.0

TokenLists = list[list[int]]


@dataclass(frozen=True)
class Setup:
    """How large everything is, on each side alike."""

    python: Path
    model: Path
    num_threads: int
    kv_bytes: int
    max_num_seqs: int
    step_tokens: int
    max_model_len: int = 2048

    @property
    def sizes(self) -> dict[str, Any]:
        """For `gpu_node.vllm.installation.direct`."""
        names = ("num_threads", "kv_bytes", "max_num_seqs", "step_tokens", "max_model_len")
        return {"dtype": "auto"} | {name: getattr(self, name) for name in names}

    def config(self, **more: Any) -> dict[str, Any]:
        """Of a cluster of one node."""
        return {
            "models": [
                {"name": name, "source": str(self.model.absolute()), "max_model_len": self.max_model_len}
                for name in (MODEL, OTHER)
            ],
            "nodes": [
                {
                    "name": NODE,
                    "engine": "vllm",
                    "num_threads": self.num_threads,
                    "vllm": {"python": str(self.python), "kv": "host"},
                }
            ],
            "engine": {
                "kv_cache_bytes": self.kv_bytes,
                "max_num_seqs": self.max_num_seqs,
                "step_tokens": self.step_tokens,
                "step_timeout_s": WAIT_S,
            },
            **more,
        }


class Direct:
    """vLLM alone, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait(self) -> None:
        """Until it has loaded."""
        assert self._line() == "ready\n"

    def ask(self, prompts: TokenLists, max_tokens: int) -> tuple[float, TokenLists]:
        """All at once, by `LLM.generate`; seconds to the last token, and the tokens."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        return answer["seconds"], answer["tokens"]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClusterError(f"vLLM alone has ended with status {self._process.wait()}")
        return line


@contextmanager
def direct(setup: Setup) -> Iterator[Direct]:
    """Started before the block; it may still load."""
    command = [
        str(setup.python),
        "-m",
        "gpu_node.vllm.installation.direct",
        str(setup.model.absolute()),
        json.dumps(setup.sizes),
    ]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # noqa: S603 - our own module
        try:
            yield Direct(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends with its questions
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


class RunningCluster:
    """Where it answers."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.url = f"http://{HOST}:{config['gateway']['port']}"
        self._node_url = f"http://{HOST}:{config['admin_port'] + NUM_ADMIN_PORTS - 1}"

    def preemptions(self) -> float:
        """Of vLLM's own accord, so far."""
        with urlopen(f"{self._node_url}/metrics") as answer:  # noqa: S310 - this machine's
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_preemptions_total"))

    def engine_cpu_s(self) -> tuple[float, float]:
        """Processor seconds of the engine's process, and of vLLM's below it."""
        with urlopen(f"{self._node_url}/status") as answer:  # noqa: S310 - likewise
            head = psutil.Process(json.load(answer)["engine_pid"])
        below = sum(_cpu_s(process) for process in head.children(recursive=True))
        return _cpu_s(head), below


@contextmanager
def cluster(setup: Setup) -> Iterator[RunningCluster]:
    """Up inside of the block, started and stopped by the command."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        ports = {"gateway": {"host": HOST, "port": free_port(HOST)}, "admin_port": _admin_ports()}
        config = setup.config(**ports, data_dir=str(Path(folder, "data")))
        file = Path(folder, "cluster.yaml")
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        try:
            _treadle("up", "--wait-s", str(UP_S), "-f", str(file))
            yield RunningCluster(config)
        finally:
            _treadle("down", "-f", str(file))


def _treadle(*arguments: str) -> None:
    command = [sys.executable, "-m", "cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        raise ClusterError(f"treadle {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def _admin_ports() -> int:
    return FIRST_ADMIN_PORT + os.getpid() * NUM_ADMIN_PORTS % (LAST_ADMIN_PORT - FIRST_ADMIN_PORT)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class VllmEnd:
    """The agent's end of an engine process."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = event_decoder()
        self._events: list[EngineEvent | EngineRefused] = []
        self.stats: EngineStats | None = None

    def send(self, *commands: Command) -> None:
        """In one go."""
        self._socket.sendall(b"".join(map(frame, commands)))

    def next(self) -> EngineEvent | EngineRefused:
        """The next event."""
        while not self._events:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ClusterError("the engine process has ended")
            self._events = self._decoder.feed(data)
        event = self._events.pop(0)
        if isinstance(event, StepReport):
            self.stats = event.stats
        return event

    @property
    def restored_tokens(self) -> int:
        """Whose KV came back, so far."""
        assert self.stats is not None
        return self.stats.counts.restored_tokens

    def load(self, model: str) -> ModelLoaded:
        """Make a model the current one."""
        self.send(LoadModel(model))
        answer = self.next()
        while not isinstance(answer, ModelLoaded):
            if not isinstance(answer, StepReport):
                raise ClusterError(f"no model: {answer}")
            answer = self.next()
        return answer


@contextmanager
def engine(setup: Setup) -> Iterator[VllmEnd]:
    """An engine process that reads commands."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        config = Path(folder, "cluster.yaml")
        config.write_text(yaml.safe_dump(setup.config()), encoding="utf-8")
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        with theirs:
            command = [str(setup.python), "-m", "gpu_node.vllm", "--node", NODE, "--fd", str(theirs.fileno())]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            environment = os.environ | {CONFIG_ENV: str(config)}
            process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], **quiet)  # noqa: S603
        with process, ours:
            try:
                end = VllmEnd(ours)
                ready = end.next()
                if not isinstance(ready, EngineReady):
                    raise ClusterError(f"no engine: {ready}")
                yield end
                end.send(Shutdown())
                process.wait(END_S)
            finally:
                process.kill()
