"""Real node agents as processes: started, found again, stopped, never doubled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from cli.config.yaml import process_yaml
from services.scheduler.providers import process
from services.scheduler.providers.process import ProcessProvider
from services.scheduler.providers.provider import ProviderError
from shared.config.config import ADMIN_SERVICES, CONFIG_ENV, REDIS_ENV, ClusterConfig, ConfigError
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.processes.node_processes import find_nodes
from shared.processes.process_record import is_running
from shared.processes.processes import stop
from shared.telemetry.log_files import log_file
from tests.gateway.tiny import write_model
from tests.ports import free_port_range

POOL = NodePool(name="p", max_nodes=3, executor="predicted", device="a10")
OTHER = NodePool(name="p-other", max_nodes=3, executor="predicted", device="a10")
HOST = "127.0.0.1"
WAIT_S = 60.0
POLL_S = 0.05


def wait_for(find: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not find():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


class Cluster:
    """A configuration file, and what runs under its name."""

    def __init__(self, folder: Path) -> None:
        model = ModelSpec(
            name="chat",
            source=str(write_model(folder / "tiny.gguf", context_length=4096)),
            max_model_len=256,
            predict_as="mistral-7b",
        )
        self.config = ClusterConfig(
            models=[model],
            nodes=[],
            pools=[POOL, OTHER],
            scaling=ScalingOptions(provider="process"),
            admin_port=free_port_range(len(ADMIN_SERVICES) + POOL.max_nodes + OTHER.max_nodes),
            data_dir=folder / "data",
        )
        self.path = folder / "cluster.yaml"
        self.path.write_text(process_yaml(self.config))

    def provider(self) -> ProcessProvider:
        """As a scheduler that has just begun makes it."""
        return process.make(self.config, "")

    def log(self, node: str) -> str:
        """What a node has written."""
        return log_file(self.config.data_dir, node).read_text()

    def pids(self) -> dict[str, int]:
        """Of the leaders that run."""
        return {name: one.pid for name, one in find_nodes(str(self.path)).items() if one.leader() is not None}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    monkeypatch.setenv(CONFIG_ENV, str(cluster.path))
    try:
        yield cluster
    finally:
        stop(find_nodes(str(cluster.path)).values())


def test_nodes_come_are_found_by_the_next_provider_and_go_from_the_last_on(
    cluster: Cluster, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REDIS_ENV, redis_url)
    first = cluster.provider()
    assert first.scale(POOL, 2) == 2
    assert first.scale(OTHER, 1) == 1
    pids = cluster.pids()
    assert list(pids) == ["p-0", "p-1", "p-other-0"]

    second = cluster.provider()
    assert second.scale(POOL, 2) == 2
    assert cluster.pids() == pids, "it found what the first had started"

    # an agent that is killed leaves its engine; before the node is started again it has to go
    agent = psutil.Process(pids["p-1"])
    wait_for(lambda: bool(agent.children()) or agent.status() == psutil.STATUS_ZOMBIE)
    assert agent.status() != psutil.STATUS_ZOMBIE, cluster.log("p-1")
    engines = agent.children()
    os.kill(agent.pid, signal.SIGKILL)
    os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)  # its last thread has ended; the status stays to be read
    with pytest.raises(ProviderError, match="p-1 ended with status -9"):
        first.scale(POOL, 2)
    wait_for(lambda: not any(is_running(engine) for engine in engines))
    assert cluster.pids()["p-1"] != agent.pid
    assert first.scale(POOL, 2) == 2

    assert second.scale(POOL, 1) == 1
    assert cluster.pids() == {name: pid for name, pid in pids.items() if name != "p-1"}
    assert first.scale(POOL, 0) == 0
    assert list(cluster.pids()) == ["p-other-0"]


def test_a_node_that_ends_by_itself_says_why(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REDIS_ENV, f"redis://{HOST}:1/0")
    provider = cluster.provider()
    provider.scale(POOL, 1)
    (pid,) = cluster.pids().values()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProviderError, match=f"p-0 ended with status 2: no Redis answers at redis://{HOST}:1/0"):
        provider.scale(POOL, 1)
    assert provider.scale(POOL, 0) == 0


def test_a_node_whose_log_is_gone_is_an_error_of_the_pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REDIS_ENV, f"redis://{HOST}:1/0")
    provider = cluster.provider()
    provider.scale(POOL, 1)
    (pid,) = cluster.pids().values()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    log_file(cluster.config.data_dir, "p-0").unlink()
    with pytest.raises(ProviderError, match="p-0"):
        provider.scale(POOL, 0)


def test_another_cluster_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.yaml"
    stranger.write_text(yaml.safe_dump({}))
    assert find_nodes(str(stranger)) == {}
    assert ProcessProvider(str(stranger), tmp_path).scale(POOL, 0) == 0


def test_without_a_configuration_file_it_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_ENV)
    with pytest.raises(ConfigError, match=f"needs {CONFIG_ENV}"):
        cluster.provider()
