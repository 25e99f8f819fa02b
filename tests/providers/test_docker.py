"""Containers of a real daemon, where one answers. Their image is a program that waits for SIGTERM, and nothing else."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException

from cli.cluster.processes.ports import free_port
from services.scheduler.providers.docker import DockerProvider
from services.scheduler.providers.provider import ProviderError
from shared.config.nodes.nodes import DockerOptions, NodePool

POOL = NodePool(name="p", max_nodes=3)
OTHER = NodePool(name="q", max_nodes=3)
IMAGE = "treadle-test/waits:dev"
PROGRAM = """
#include <signal.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
int main(void) { signal(SIGTERM, end); for (;;) pause(); }
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    try:
        _reach()
        client = docker.from_env()
        client.ping()
    except (OSError, DockerException) as error:
        pytest.skip(f"no Docker daemon answers: {error}")
    yield client
    client.close()


def _reach() -> None:
    """`OSError` where nobody listens: docker-py finds that out too, but leaves its socket open."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(host.removeprefix("unix://"))


@pytest.fixture(scope="module")
def image(client: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Made here: no registry is asked."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no compiler for the image's program")
    folder: Path = tmp_path_factory.mktemp("image")
    (folder / "waits.c").write_text(PROGRAM)
    subprocess.run([compiler, "-static", "-o", str(folder / "waits"), str(folder / "waits.c")], check=True)
    (folder / "Dockerfile").write_text('FROM scratch\nCOPY waits /waits\nENTRYPOINT ["/waits"]\n')
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name in ("Dockerfile", "waits"):
            archive.add(folder / name, name)
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=IMAGE, rm=True)
    return IMAGE


class Cluster:
    def __init__(self, client: Any, network: str, image: str) -> None:
        self.client = client
        self.network = network
        self.options = DockerOptions(
            image=image,
            network=network,
            volumes=["/tmp:/models:ro"],
            environment={"EXTRA": "1"},
            memory_bytes=64 << 20,
        )

    def provider(self, options: DockerOptions | None = None) -> DockerProvider:
        return DockerProvider(self.client, options or self.options, {"TREADLE_CONFIG": "/etc/treadle/cluster.yaml"})

    def containers(self) -> dict[str, Any]:
        found = self.client.containers.list(all=True, filters={"label": f"treadle.cluster={self.network}"})
        return {one.labels["treadle.node"]: one for one in sorted(found, key=lambda one: one.name)}


@pytest.fixture
def cluster(client: Any, image: str) -> Iterator[Cluster]:
    network = client.networks.create(f"treadle-test-{uuid.uuid4().hex[:8]}")
    cluster = Cluster(client, network.name, image)
    try:
        yield cluster
    finally:
        for container in cluster.containers().values():
            container.remove(force=True)
        network.remove()


@pytest.mark.timeout(300)
def test_containers_come_are_found_by_the_next_provider_and_go_from_the_last_on(cluster: Cluster) -> None:
    first = cluster.provider()
    assert first.scale(POOL, 2) == 2
    assert first.scale(OTHER, 1) == 1
    before = {node: one.id for node, one in cluster.containers().items()}
    assert list(before) == ["p-0", "p-1", "q-0"]

    second = cluster.provider()
    assert second.scale(POOL, 2) == 2
    assert {node: one.id for node, one in cluster.containers().items()} == before

    cluster.containers()["p-0"].stop()  # an operator's stop: it is wanted, so it comes again
    assert second.scale(POOL, 2) == 2
    assert cluster.containers()["p-0"].id != before["p-0"]

    assert second.scale(POOL, 1) == 1
    assert list(cluster.containers()) == ["p-0", "q-0"]
    assert first.scale(POOL, 0) == 0
    assert list(cluster.containers()) == ["q-0"]


@pytest.mark.timeout(300)
def test_a_container_is_the_node_that_it_is_to_be_and_has_no_rights(cluster: Cluster) -> None:
    cluster.provider().scale(POOL, 1)
    facts = cluster.containers()["p-0"].attrs
    host, inside = facts["HostConfig"], facts["Config"]
    environment = set(inside["Env"])
    assert {"TREADLE_NODE=p-0", "TREADLE_CONFIG=/etc/treadle/cluster.yaml", "EXTRA=1"} <= environment
    assert inside["Hostname"] == "p-0"
    assert host["ReadonlyRootfs"]
    assert host["Init"]
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges:true"])
    assert (host["Memory"], host["Binds"]) == (64 << 20, ["/tmp:/models:ro"])
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert list(facts["NetworkSettings"]["Networks"]) == [cluster.network]
    assert "nodes" in facts["NetworkSettings"]["Networks"][cluster.network]["Aliases"]


def test_an_image_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    missing = cluster.options.model_copy(update={"image": "treadle-test/nowhere:none"})
    with pytest.raises(ProviderError, match="docker: "):
        cluster.provider(missing).scale(POOL, 1)


def test_a_daemon_that_is_gone_is_an_error_of_the_pool_and_not_the_end_of_the_scheduler() -> None:
    """It is looked for when the scheduler starts; later it may be stopped, upgraded, or too busy to answer in time."""
    with closing(docker.DockerClient(base_url=f"tcp://127.0.0.1:{free_port('127.0.0.1')}", version="1.41")) as client:
        provider = DockerProvider(client, DockerOptions(image="image", network="network"), {})
        with pytest.raises(ProviderError, match="docker: "):
            provider.scale(POOL, 1)
