"""Which processes make up a cluster: how each is started and where it answers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from shared.config.addresses import reachable
from shared.config.config import ADMIN_PORT_ENV, BATCHES, CONFIG_ENV, NODE_ENV, REDIS_ENV, ClusterConfig
from shared.processes import node_processes

REDIS = "redis"
GATEWAY = "gateway"
SERVICES = {
    "queue-manager": "services.queue_manager",
    "scheduler": "services.scheduler",
    "kv-manager": "services.kv_manager",
}
# Started in this order, stopped in the opposite one: a gateway that drains still needs the nodes, and shall get no more
# requests of batches.
REDIS_STAGE, SERVICE_STAGE, NODE_STAGE, GATEWAY_STAGE, BATCH_STAGE = 0, 1, node_processes.NODE_STAGE, 3, 4


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """One process of the plan and the address of its health endpoints."""

    name: str
    arguments: tuple[str, ...]
    host: str
    port: int
    stage: int
    num_threads: int = 1
    """Size of OpenMP's pool. Several processes share the cores, and OpenMP would take all of them for each."""
    clients: tuple[str, int] | None = None
    """Host and port where it serves clients, beside the health endpoints."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Command line, under the interpreter that runs the CLI."""
        return (sys.executable, "-m", *self.arguments)

    @property
    def probe_host(self) -> str:
        """Where to reach it from this machine, also when it listens on every interface."""
        return reachable(self.host)


def process_plan(config: ClusterConfig) -> list[ProcessSpec]:
    """All processes but Redis, in the order of their start."""
    host = config.admin_host
    services = [
        ProcessSpec(name=name, arguments=(module,), host=host, port=config.admin_port_of(name), stage=SERVICE_STAGE)
        for name, module in SERVICES.items()
    ]
    nodes = [node_spec(config, node.name) for node in config.nodes]
    gateway = ProcessSpec(
        name=GATEWAY,
        arguments=("gateway",),
        host=host,
        port=config.admin_port_of(GATEWAY),
        stage=GATEWAY_STAGE,
        clients=(config.gateway.host, config.gateway.port),
    )
    return [*services, *nodes, gateway, *_batches(config)]


def _batches(config: ClusterConfig) -> list[ProcessSpec]:
    if not config.batches.enabled:
        return []
    port = config.admin_port_of(BATCHES)
    return [
        ProcessSpec(name=BATCHES, arguments=("services.batches",), host=config.admin_host, port=port, stage=BATCH_STAGE)
    ]


def node_spec(config: ClusterConfig, name: str) -> ProcessSpec:
    """A node, alone or of a pool; those of pools are not in the plan, since they come and go."""
    return ProcessSpec(
        name=name,
        arguments=("gpu_node.agent", "--node", name),
        host=config.admin_host,
        port=config.admin_port_of(name),
        stage=NODE_STAGE,
        num_threads=config.node(name).num_threads,
    )


def process_environment(config_path: str, redis_url: str, num_threads: int) -> dict[str, str]:
    """Environment of a process: ours, and what the cluster adds; what makes one of them another than it is, is not."""
    return {
        **{name: value for name, value in os.environ.items() if name not in (ADMIN_PORT_ENV, NODE_ENV)},
        CONFIG_ENV: config_path,
        REDIS_ENV: redis_url,
        "OMP_NUM_THREADS": str(num_threads),
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # `python -m` would put the current folder first, whatever lies in it
    }
