"""The pods of the Helm chart as processes of this machine: their commands, environment and files make a cluster."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import openai
import pytest
import yaml
from openai import AsyncOpenAI
from redis import Redis

from cli.ports import free_port
from shared.model_file import models_dir
from tests.e2e.cluster import HOST, PROBE_TIMEOUT_S, wait_for
from tests.helm.chart import Chart, Object, cluster_text, of_kind, pod_templates

KEY = "sk-of-the-chart"
VALUES = {
    "gpuNode": {"pools": [{"name": "cpu", "node": {"max_nodes": 1}}]},
    "apiKeys": {"list": [{"key": KEY, "tenant": "acme"}]},
}


@dataclass(frozen=True)
class Pod:
    """One container, as it is started in a pod of this name."""

    name: str
    container: Object
    port: int
    files: dict[str, Path]
    """What is mounted, by where it is mounted."""

    @property
    def environment(self) -> dict[str, str]:
        return {entry["name"]: self._local(entry) for entry in self.container["env"]}

    def _local(self, entry: dict[str, Any]) -> str:
        """A value as Kubernetes gives it, where a mounted folder lies elsewhere and ports must differ."""
        if "valueFrom" in entry:
            assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            return self.name
        if entry["name"] == "TREADLE_ADMIN_PORT":
            return str(self.port)
        value: str = entry["value"]
        mounts = [mount for mount in self.files if f"{value}/".startswith(f"{mount}/")]
        return value.replace(mounts[0], str(self.files[mounts[0]]), 1) if mounts else value

    @contextmanager
    def running(self, **settings: str) -> Iterator[None]:
        """Run it until the block ends; then it is asked to stop and has to end by itself."""
        python, *arguments = self.container["command"]
        assert python == "python"
        log = (self.files["/tmp"] / f"{self.name}.log").open("wb")
        with (
            log,
            subprocess.Popen(
                [sys.executable, *arguments], env=os.environ | self.environment | settings, stderr=log
            ) as process,
        ):
            try:
                yield
            finally:
                process.terminate()
        assert process.returncode == 0, Path(log.name).read_text()

    def is_ready(self) -> bool:
        path = self.container["readinessProbe"]["httpGet"]["path"]
        try:
            with urlopen(f"http://{HOST}:{self.port}{path}", timeout=PROBE_TIMEOUT_S):
                return True
        except (URLError, OSError):
            return False


@pytest.fixture
def objects() -> list[Object]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return Chart(process).objects(VALUES)


def mounted(objects: list[Object], folder: Path, port: int) -> dict[str, Path]:
    """What pods find in their volumes; the gateway's port is another, since this machine has one network."""
    config = yaml.safe_load(cluster_text(objects))
    config["gateway"] |= {"host": HOST, "port": port}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
    (secret,) = of_kind(objects, "Secret").values()
    for name, text in secret["stringData"].items():
        (folder / name).write_text(text)
    return {"/etc/treadle-keys": folder, "/etc/treadle": folder, "/models": models_dir(), "/tmp": folder}


@pytest.mark.usefixtures("model_file")
async def test_what_the_chart_starts_is_a_cluster_that_answers(
    objects: list[Object], tmp_path: Path, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()
    port = free_port(HOST)
    files = mounted(objects, tmp_path, port)
    pods = [
        Pod(f"{owner}-0", pod["spec"]["containers"][0], port if "gateway" in owner else free_port(HOST), files)
        for owner, pod in pod_templates(objects)
        if owner not in ("treadle-redis", "treadle-test")
    ]
    assert len(pods) == 5
    url = f"http://{HOST}:{port}/v1"
    with ExitStack() as stack:
        for pod in pods:
            stack.enter_context(pod.running(TREADLE_REDIS_URL=redis_url))
        for pod in pods:
            wait_for(f"{pod.name} to be ready", pod.is_ready)
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            answer = await client.completions.create(model="smollm2-135m", prompt="Once upon a time", max_tokens=8)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        async with AsyncOpenAI(base_url=url, api_key="sk-another", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
