"""Fixtures of the CLI's tests: a private cluster in a temporary folder, and the command as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.cluster.processes.health import known_state
from cli.cluster.processes.ports import free_port
from cli.cluster.processes.process_plan import process_plan
from cli.cluster.state import ClusterState
from shared.config.config import load_config
from tests.cli import stand_in
from tests.cli.buckets import stored
from tests.cli.object_store import ObjectStore
from tests.cli.whole_model import write_whole
from tests.ports import free_port_range

COMMAND_TIMEOUT_S = 60
NUM_PROCESSES = 5  # with an admin port
REPOSITORY = Path(__file__).parents[2]


@dataclass
class Cluster:
    """A configured cluster whose processes are stand-ins; only Redis is real."""

    folder: Path
    config: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def config_file(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def state(self) -> ClusterState:
        return ClusterState.load(self.data_dir / "run" / "cluster.json")

    def pids(self) -> dict[str, int]:
        return {name: record.pid for name, record in self.state.processes.items()}

    def status_of(self, name: str) -> dict[str, Any]:
        """What the stand-in ``name`` tells of itself."""
        (spec,) = (spec for spec in process_plan(load_config(self.config_file)) if spec.name == name)
        return known_state(spec)

    def write_config(self, **changes: object) -> None:
        self.config |= changes
        self.config_file.write_text(yaml.safe_dump(self.config))

    def treadle(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return treadle(*arguments, "-f", str(self.config_file), environment=self.environment)


def treadle(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env={key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")} | environment,
    )


@pytest.fixture
def cluster(tmp_path: Path, redis_program: Path) -> Iterator[Cluster]:
    stand_in.install(tmp_path / "modules")
    model = write_whole(tmp_path / "tiny.gguf")
    cluster = Cluster(
        tmp_path,
        {
            "models": [{"name": "tiny", "source": str(model)}],
            "nodes": [{"name": "rack/node-0", "num_threads": 3}],
            "gateway": {"port": free_port("127.0.0.1")},
            "admin_port": free_port_range(NUM_PROCESSES),
            "data_dir": str(tmp_path / "data"),
        },
        {"PYTHONPATH": os.pathsep.join([str(tmp_path / "modules"), str(REPOSITORY)])},
    )
    cluster.write_config()
    yield cluster
    if cluster.state.processes:
        stopped = cluster.treadle("down")
        assert stopped.returncode == 0, stopped.stderr


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """With a directory and a file, an environment that leads to it alone, and an empty folder for models."""
    with stored(tmp_path, monkeypatch) as store:
        yield store
