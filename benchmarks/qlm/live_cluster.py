"""A cluster of its own for a benchmark: written, started and stopped by the `treadle` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cli.cluster.processes.ports import free_port
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE

HOST = "127.0.0.1"
FIRST_ADMIN_PORT, NUM_ADMIN_PORTS = 21_000, 11_000  # below those that systems give to clients
COMMAND_TIMEOUT_S = 300
MODELS = ("hot", "cold")


def two_nodes(policy: str) -> dict[str, Any]:
    """Two models on two CPU nodes, one thread each; promises that this small cluster can nearly keep."""
    return {
        "models": [
            {"name": name, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512} for name in MODELS
        ],
        "slo_classes": {
            "interactive": {"deadline_s": 8, "queue_ttl_s": 600},
            "batch-1": {"deadline_s": 90, "queue_ttl_s": 600},
        },
        "nodes": [{"name": f"node-{number}", "cpus": [number]} for number in range(2)],
        "engine": {"max_num_seqs": 8},
        "queue": {"policy": policy},
    }


class LiveCluster:
    """Where a running cluster answers."""

    def __init__(self, folder: Path, config: dict[str, Any], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        ports = {
            "gateway": {"host": HOST, "port": free_port(HOST)},
            "admin_port": FIRST_ADMIN_PORT + os.getpid() % NUM_ADMIN_PORTS,
        }
        self.config = {**ports, **config, "data_dir": str(folder / "data")}
        self.file = folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(self.config))

    @property
    def url(self) -> str:
        """Of the gateway."""
        return f"http://{HOST}:{self.config['gateway']['port']}"

    @property
    def redis_url(self) -> str:
        """Of the Redis that the command started."""
        record = json.loads((self._folder / "data" / "run" / "cluster.json").read_text())
        return f"redis://{HOST}:{record['redis_port']}/0"

    def treadle(self, command: str) -> None:
        """Run ``treadle COMMAND``; its output is shown when it fails."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("treadle")), command, "-f", str(self.file)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"treadle {command} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def running(config: dict[str, Any], environment: Mapping[str, str]) -> Iterator[LiveCluster]:
    """A cluster that serves, its processes with this ``environment`` too, and nothing left of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="treadle-live-") as folder:
        cluster = LiveCluster(Path(folder), config, environment)
        cluster.treadle("up")
        try:
            yield cluster
        finally:
            cluster.treadle("down")
