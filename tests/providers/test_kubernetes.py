"""The real client against an API server that speaks the real protocol, and against a real one where there is one."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.config import list_kube_config_contexts

from services.scheduler.providers import kubernetes
from services.scheduler.providers.kubernetes import MAX_TRIES, KubernetesProvider
from services.scheduler.providers.provider import ProviderError
from shared.config.config import ClusterConfig, ConfigError
from shared.config.nodes.nodes import NodePool
from tests.providers.fake_kubernetes import FakeKubernetes, StatefulSet, write_kubeconfig

POOL = NodePool(name="gpu", max_nodes=5)


class World:
    """An API server, and a provider that found it by its kubeconfig."""

    def __init__(self, server: FakeKubernetes, provider: KubernetesProvider) -> None:
        self.server = server
        self.provider = provider
        self.gpu = server.sets["ns", "gpu"]

    async def scale(self, num_nodes: int, pool: NodePool = POOL) -> int:
        return await asyncio.to_thread(self.provider.scale, pool, num_nodes)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    server = FakeKubernetes({("ns", "gpu"): StatefulSet()}, {("get", "gpu"), ("patch", "gpu")})
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, await server.start(), "ns")
    monkeypatch.setenv("KUBECONFIG", str(path))
    try:
        yield World(server, kubernetes.make(ClusterConfig(), "redis://unused"))
    finally:
        await server.stop()


async def test_replicas_are_set_and_pods_are_counted_as_they_come(world: World) -> None:
    assert [await world.scale(2) for _ in range(3)] == [0, 1, 2]
    assert world.gpu.replicas == 2
    assert [await world.scale(0) for _ in range(3)] == [2, 1, 0]
    assert world.gpu.replicas == 0


async def test_what_is_so_already_is_only_looked_at(world: World) -> None:
    await world.scale(3)
    world.server.calls.clear()
    await world.scale(3)
    assert world.server.calls == [("get", "gpu")]


async def test_a_conflict_is_tried_again_with_what_is_there_then(world: World) -> None:
    world.gpu.num_meddlers = MAX_TRIES - 1
    await world.scale(2)
    assert world.gpu.replicas == 2
    assert world.server.calls == [("get", "gpu"), ("patch", "gpu")] * MAX_TRIES


async def test_not_for_ever(world: World) -> None:
    world.gpu.num_meddlers = 100
    with pytest.raises(ProviderError, match="changed by others all the time"):
        await world.scale(2)
    assert len(world.server.calls) == 2 * MAX_TRIES
    assert world.gpu.replicas == 0


async def test_without_the_right_or_the_statefulset_it_says_what_is_missing(world: World) -> None:
    world.server.allowed.discard(("patch", "gpu"))
    with pytest.raises(ProviderError, match="may not get and patch statefulsets/scale of gpu in namespace ns"):
        await world.scale(2)
    world.server.allowed.add(("get", "other"))
    with pytest.raises(ProviderError, match="there is no StatefulSet other in namespace ns"):
        await world.scale(2, NodePool(name="other"))
    assert world.gpu.replicas == 0


async def test_an_api_server_that_is_away_is_an_error_and_not_for_good(world: World) -> None:
    await world.server.stop()
    with pytest.raises(ProviderError, match="the API server does not answer"):
        await world.scale(2)


async def test_without_a_namespace_in_the_context_it_is_the_default_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeKubernetes({("default", "gpu"): StatefulSet()}, {("get", "gpu"), ("patch", "gpu")})
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, await server.start(), None)
    monkeypatch.setenv("KUBECONFIG", str(path))
    try:
        provider = kubernetes.make(ClusterConfig(), "redis://unused")
        await asyncio.to_thread(provider.scale, POOL, 1)
    finally:
        await server.stop()
    assert server.sets["default", "gpu"].replicas == 1


def test_without_any_cluster_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="needs a pod's service account, or KUBECONFIG"):
        kubernetes.make(ClusterConfig(), "redis://unused")


@pytest.mark.skipif(not os.environ.get("KUBECONFIG"), reason="KUBECONFIG names no cluster")
def test_a_real_api_server() -> None:
    """A StatefulSet of its own in the context's namespace, with an image that never starts: pods are counted all the
    same."""
    provider = kubernetes.make(ClusterConfig(), "redis://unused")
    _, context = list_kube_config_contexts(os.environ["KUBECONFIG"])
    namespace = context["context"].get("namespace", "default")
    pool = NodePool(name=f"treadle-test-{uuid.uuid4().hex[:8]}")
    labels = {"app": pool.name}
    body: Any = {
        "metadata": {"name": pool.name},
        "spec": {
            "serviceName": pool.name,
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "node", "image": "treadle.invalid/none:none"}]},
            },
        },
    }
    api = client.AppsV1Api()
    api.create_namespaced_stateful_set(namespace, body)
    try:
        assert provider.scale(pool, 1) == 0
        assert api.read_namespaced_stateful_set(pool.name, namespace).spec.replicas == 1
        provider.scale(pool, 0)
        assert api.read_namespaced_stateful_set(pool.name, namespace).spec.replicas == 0
    finally:
        api.delete_namespaced_stateful_set(pool.name, namespace)
