"""Nodes as containers of the scheduler's Docker daemon, hardened like those of docker-compose.yml."""

from __future__ import annotations

import os
from typing import Any

import docker
from docker.errors import DockerException, NotFound

from services.scheduler.providers.provider import ProviderError
from shared.config.config import CONFIG_ENV, NODE_ENV, REDIS_ENV, ClusterConfig, ConfigError
from shared.config.nodes.nodes import DockerOptions, NodePool

CLUSTER_LABEL = "treadle.cluster"
NODE_LABEL = "treadle.node"
STOP_GRACE_S = 20  # a node hands its work over within five seconds, then its engine ends
CALL_TIMEOUT_S = 60  # of one call to the daemon, a stop within it
PIDS_LIMIT = 512
ALIAS = "nodes"  # by this name in the network Prometheus finds all of them, as in docker-compose.yml


class DockerProvider:
    """Containers are known by their labels: two clusters of one daemon have two networks."""

    def __init__(self, client: Any, options: DockerOptions, environment: dict[str, str]) -> None:
        self._client = client
        self._options = options
        self._environment = environment

    def scale(self, pool: NodePool, num_nodes: int) -> int:
        """As `Provider.scale`."""
        wanted = [f"{pool.name}-{ordinal}" for ordinal in range(num_nodes)]
        try:
            found = self._containers(pool)
            for node, container in found.items():
                if node not in wanted:
                    _remove(container)
            for node in wanted:
                if node not in found:
                    self._run(node)
                elif found[node].status in ("created", "exited", "paused", "dead"):
                    _remove(found[node])
                    self._run(node)
            return sum(container.status == "running" for container in self._containers(pool).values())
        except (
            DockerException,
            OSError,
        ) as error:  # requests' own errors are OSErrors: no daemon answers, or not in time
            raise ProviderError(f"docker: {error}") from error

    def _containers(self, pool: NodePool) -> dict[str, Any]:
        label = f"{CLUSTER_LABEL}={self._options.network}"
        containers = self._client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        named = {container.labels.get(NODE_LABEL, ""): container for container in containers}
        return {node: container for node, container in named.items() if pool.ordinal(node) is not None}

    def _run(self, node: str) -> None:
        options = self._options
        self._client.containers.run(
            options.image,
            detach=True,
            name=f"{options.network}-{node}",
            hostname=node,
            labels={CLUSTER_LABEL: options.network, NODE_LABEL: node},
            environment={**self._environment, **options.environment, NODE_ENV: node},
            volumes=options.volumes,
            network=options.network,
            networking_config={options.network: self._client.api.create_endpoint_config(aliases=[ALIAS])},
            restart_policy={"Name": "unless-stopped"},
            init=True,
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777"},  # noqa: S108 (inside the container, its own)
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            pids_limit=PIDS_LIMIT,
            mem_limit=options.memory_bytes,
        )


def _remove(container: Any) -> None:
    try:
        container.stop(timeout=STOP_GRACE_S)
        container.remove()
    except NotFound:
        return  # another process was quicker


def make(config: ClusterConfig, redis_url: str) -> DockerProvider:
    """The provider of the daemon that DOCKER_HOST names, or of this machine's; `ConfigError` for what is missing."""
    assert config.scaling.docker is not None, "the configuration allows none without"
    path = os.environ.get(CONFIG_ENV)
    if not path:
        raise ConfigError(
            f"scaling.provider: docker needs {CONFIG_ENV}; in a node's container the file has the same path"
        )
    try:
        client = docker.from_env(timeout=CALL_TIMEOUT_S)
    except DockerException as error:
        raise ConfigError(
            f"scaling.provider: no Docker daemon answers ({error}); set DOCKER_HOST, or mount its socket"
        ) from error
    return DockerProvider(client, config.scaling.docker, {CONFIG_ENV: path, REDIS_ENV: redis_url})
