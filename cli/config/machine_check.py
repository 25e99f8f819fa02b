"""Whether this machine can run the whole cluster: ports, CPUs, the folder for data, what executors need."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from cli.config.pipeline_check import pipeline_problems
from cli.config.vllm_check import vllm_problems
from gpu_node.executors.own_cpus import cpu_problem
from gpu_node.executors.torch_installed import torch_problem
from shared.config.config import ClusterConfig

MAX_PORT = 65_535
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on


def machine_problems(config: ClusterConfig) -> list[str]:
    """What is in the way of `treadle up`, whatever runs at the moment; ports that others hold are not asked for."""
    return [
        *_ports(config),
        *_cpus(config),
        *_executors(config),
        *_data_dir(config),
        *vllm_problems(config),
        *pipeline_problems(config),
    ]


def _ports(config: ClusterConfig) -> list[str]:
    """The admin ports are consecutive; the gateway's must be none of them, and all have to exist."""
    names = [*config.admin_services, *(node.name for node in config.nodes)]
    names += [f"{pool.name}-{number}" for pool in config.pools for number in range(pool.max_nodes)]
    last = config.admin_port + len(names) - 1
    problems = []
    if last > MAX_PORT:
        problems.append(
            f"admin_port: services and nodes take consecutive ports from {config.admin_port} on, and {MAX_PORT} is the "
            "last that there is; set a smaller one"
        )
    hosts = {config.gateway.host, config.admin_host}
    number = config.gateway.port - config.admin_port
    if 0 <= number < len(names) and (len(hosts) == 1 or hosts & set(_EVERYWHERE)):
        problems.append(
            f"gateway.port: {config.gateway.port} is the admin port of {names[number]} (services and nodes take "
            f"consecutive ones from admin_port on, which is {config.admin_port}); set another"
        )
    return problems


def _cpus(config: ClusterConfig) -> list[str]:
    found = ((number, cpu_problem(node)) for number, node in enumerate(config.nodes))
    return [f"nodes.{number}.cpus: {problem}" for number, problem in found if problem]


def _executors(config: ClusterConfig) -> list[str]:
    found = ((number, torch_problem(node)) for number, node in enumerate(config.nodes))
    return [f"nodes.{number}.{problem}" for number, problem in found if problem]


def _data_dir(config: ClusterConfig) -> list[str]:
    """The folder, or the nearest above it that is there, in which it would be made."""
    folder = config.data_dir.expanduser().absolute()
    for place in (folder, *folder.parents):
        if not place.exists():
            continue
        if not place.is_dir():
            return [f"data_dir: {place} is a file; name a folder"]
        if not os.access(place, os.W_OK | os.X_OK):
            return [f"data_dir: {place} cannot be written by this user; name another folder"]
        return []
    return []


def machine_memory_bytes() -> int:
    """Memory of this machine, or of the container that this process is in."""
    total_bytes = psutil.virtual_memory().total
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total_bytes  # no container, or another kind of system
    return min(total_bytes, int(limit)) if limit.isdigit() else total_bytes
