"""Nodes as pods: replicas of the StatefulSet that is called like the pool, by its ``scale`` subresource alone.

Pods of a StatefulSet have the names of the pool's nodes, and the last leaves first. All that the scheduler's service
account needs is ``get`` and ``patch`` on ``statefulsets/scale`` of these names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from services.scheduler.providers.provider import ProviderError
from shared.config.config import ClusterConfig, ConfigError
from shared.config.nodes.nodes import NodePool

CALL_TIMEOUT_S = 10.0
MAX_TRIES = 5  # where another client changes the StatefulSet at the same time
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
_NOT_FOUND, _CONFLICT, _FORBIDDEN = 404, 409, 403


class KubernetesProvider:
    """The StatefulSets of one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        """``api`` is a `kubernetes.client.AppsV1Api`."""
        self._api = api
        self._namespace = namespace

    def scale(self, pool: NodePool, num_nodes: int) -> int:
        """As `Provider.scale`; the StatefulSet's controller starts and stops the pods, and says how many there are."""
        try:
            for _ in range(MAX_TRIES):
                scale = self._api.read_namespaced_stateful_set_scale(
                    pool.name, self._namespace, _request_timeout=CALL_TIMEOUT_S
                )
                # a count of 0 is left out
                if (scale.spec.replicas or 0) == num_nodes or self._patch(pool.name, num_nodes, scale):
                    return int(scale.status.replicas)
        except ApiException as error:
            raise ProviderError(self._explained(pool.name, error)) from error
        except HTTPError as error:
            raise ProviderError(f"kubernetes: the API server does not answer: {error}") from error
        raise ProviderError(f"kubernetes: StatefulSet {pool.name} is changed by others all the time; nothing was done")

    def _patch(self, name: str, num_nodes: int, seen: Any) -> bool:
        """Whether it took: only what was seen is replaced."""
        body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"replicas": num_nodes}}
        try:
            self._api.patch_namespaced_stateful_set_scale(name, self._namespace, body, _request_timeout=CALL_TIMEOUT_S)
        except ApiException as error:
            if error.status == _CONFLICT:
                return False
            raise
        return True

    def _explained(self, name: str, error: ApiException) -> str:
        if error.status == _NOT_FOUND:
            return f"kubernetes: there is no StatefulSet {name} in namespace {self._namespace}; each pool needs one"
        if error.status == _FORBIDDEN:
            return (
                f"kubernetes: the service account may not get and patch statefulsets/scale of {name} in namespace "
                f"{self._namespace}; bind it to a Role that allows this"
            )
        return f"kubernetes: {error.status} {error.reason}"


def make(cluster: ClusterConfig, redis_url: str) -> KubernetesProvider:  # noqa: ARG001 (pods have their environment)
    """The provider of the cluster that this pod is in, else of KUBECONFIG's context; `ConfigError` for neither."""
    try:
        if NAMESPACE_FILE.exists():
            config.load_incluster_config()
            namespace = NAMESPACE_FILE.read_text().strip()
        else:
            path = os.environ.get("KUBECONFIG")  # the client looks when it is imported
            config.load_kube_config(path)
            _, context = config.list_kube_config_contexts(path)
            namespace = context["context"].get("namespace", DEFAULT_NAMESPACE)
    except ConfigException as error:
        raise ConfigError(
            f"scaling.provider: kubernetes needs a pod's service account, or KUBECONFIG: {error}"
        ) from error
    return KubernetesProvider(client.AppsV1Api(), namespace)
