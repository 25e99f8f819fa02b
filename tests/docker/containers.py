"""A cluster in containers, driven as an operator drives it: Compose, docker, and what the processes answer."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.docker.daemon import ROOT, run

BUILD_TIMEOUT_S = 1500  # all images, nothing cached, on a busy machine
UP_TIMEOUT_S = 300
READY_S = 120.0
POLL_S = 0.2
STOP_S = "60"
TAIL_LINES = "40"


@dataclass(frozen=True)
class Containers:
    """A Compose project of its own, beside any other on this machine."""

    compose: list[str]
    environment: dict[str, str]
    project: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, *arguments: str, timeout_s: float = UP_TIMEOUT_S) -> str:
        """A Compose command that must work; what it says."""
        done = subprocess.run(
            [*self.compose, "--project-name", self.project, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def build(self) -> None:
        self.call("build", timeout_s=BUILD_TIMEOUT_S)

    def up(self) -> None:
        """Start what is missing, and wait until every process serves."""
        self.call("up", "--detach")
        self.wait_for("every process serves", lambda: all(self.answers(name) for name in self.processes()))

    def down(self) -> None:
        self.call("down", "--volumes", "--timeout", "10")

    def processes(self) -> list[str]:
        """The services that stay; all but Redis and the one that fetches models are ours to probe."""
        return [name for name in self.ids() if name not in ("redis", "models")]

    def ids(self) -> dict[str, str]:
        """Service -> its container, running or not."""
        labels = f"label=com.docker.compose.project={self.project}"
        row = '{{.Label "com.docker.compose.service"}} {{.ID}}'
        listed = run("docker", "ps", "--all", "--no-trunc", "--filter", labels, "--format", row)
        return dict(line.split() for line in listed.stdout.splitlines())

    def run_in(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        return run("docker", "exec", self.ids()[name], *command)

    def answers(self, name: str, path: str = "/readyz") -> str:
        """What a process answers; empty if it does not, or is not ready."""
        done = self.run_in(name, "python", "-m", "shared.processes.probe", path)
        return done.stdout if done.returncode == 0 else ""

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.answers(name, "/status") or "{}")
        return status

    def kill(self, name: str) -> None:
        """End a container as a machine that loses power would."""
        assert run("docker", "kill", self.ids()[name]).returncode == 0

    def stop(self, name: str) -> None:
        """End a container in good order; it has `STOP_S` for that."""
        assert run("docker", "stop", "--time", STOP_S, self.ids()[name]).returncode == 0

    def metric(self, name: str, metric: str, **labels: str) -> float:
        """One value of what a process exports; 0 where it has none of these labels yet."""
        families = text_string_to_metric_families(self.answers(name, "/metrics"))
        samples = (sample for family in families for sample in family.samples if sample.name == metric)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def wait_for(self, what: str, find: Callable[[], object], timeout_s: float = READY_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not find():
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        return self.call("logs", "--no-color", "--tail", TAIL_LINES)
