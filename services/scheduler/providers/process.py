"""Nodes as processes on the scheduler's machine. They outlive it, so that its restart disturbs no stream."""

from __future__ import annotations

import os
from pathlib import Path

from services.scheduler.providers.provider import ProviderError
from shared.config.config import CONFIG_ENV, ClusterConfig, ConfigError
from shared.config.nodes.nodes import NodePool
from shared.processes.node_processes import find_nodes, launch_node
from shared.processes.process_record import ProcessRecord
from shared.processes.processes import StuckProcessesError, exit_status, stop
from shared.telemetry.log_files import log_file, tail

STOP_GRACE_S = 20.0  # a node hands its work over within five seconds, then its engine ends


class ProcessProvider:
    """Finds and starts nodes of one cluster, which is known by the path of its configuration."""

    def __init__(self, config_path: str, data_dir: Path) -> None:
        self._config_path = config_path
        self._data_dir = data_dir
        self._started: dict[str, ProcessRecord] = {}
        """Our own children by node: we have to learn how they ended."""

    def scale(self, pool: NodePool, num_nodes: int) -> int:
        """As `Provider.scale`."""
        found = {name: one for name, one in find_nodes(self._config_path).items() if pool.ordinal(name) is not None}
        wanted = {f"{pool.name}-{ordinal}": pool.node(ordinal) for ordinal in range(num_nodes)}
        running = {name for name, one in found.items() if one.leader() is not None}
        try:
            problems = [text for name, text in self._ended(pool).items() if name in wanted]
            # a node whose leader was killed may have left its engine: it must not run twice
            stop([one for name, one in found.items() if name not in wanted or name not in running], STOP_GRACE_S)
            for name, spec in wanted.items():
                if name not in running:
                    self._started[name] = launch_node(name, spec.num_threads, self._config_path, self._data_dir)
            self._ended(pool)  # those that were stopped are no zombies any more
        except (StuckProcessesError, OSError) as error:
            raise ProviderError(str(error)) from error
        if problems:
            raise ProviderError("; ".join(problems))
        return num_nodes

    def _ended(self, pool: NodePool) -> dict[str, str]:
        """What became of our children that have ended, by node."""
        found = {}
        for name, record in list(self._started.items()):
            status = exit_status(record) if pool.ordinal(name) is not None else None
            if status is not None:
                del self._started[name]
                last = tail(log_file(self._data_dir, name)).splitlines()[-1].strip()
                found[name] = f"{name} ended with status {status}: {last}"
        return found


def make(config: ClusterConfig, redis_url: str) -> ProcessProvider:  # noqa: ARG001 (nodes inherit the environment)
    """The provider of this process's cluster; `ConfigError` without a configuration file."""
    path = os.environ.get(CONFIG_ENV)
    if not path:
        raise ConfigError(f"scaling.provider: process needs {CONFIG_ENV}, the file that its nodes shall read as well")
    data_dir = config.data_dir.expanduser().absolute()
    (data_dir / "logs").mkdir(parents=True, exist_ok=True)
    return ProcessProvider(path, data_dir)
