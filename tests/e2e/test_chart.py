"""The pods of the Helm chart as processes of this machine: their commands, environment and files make a cluster."""

from __future__ import annotations

import base64
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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

from cli.cluster.processes.process_plan import SERVICES
from shared.bus import streams
from shared.config.config import REDIS_ENV
from shared.files.model_file import models_dir
from tests.e2e.cluster import HOST, PROBE_TIMEOUT_S, wait_for
from tests.helm.chart import Chart, Object, Values, cluster_text, of_kind, pod_templates
from tests.ports import free_port_range
from tests.redis.replicated import Server
from tests.redis.server_version import needs_waitaof
from tests.redis.waiting import until

KEY = "sk-of-the-chart"
NUM_PODS = 5  # of Treadle itself
VALUES: Values = {
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
            if secret := entry["valueFrom"].get("secretKeyRef"):
                password: Path = self.files["/etc/redis-passwords"] / secret["key"]
                return password.read_text()
            fields = {"metadata.name": self.name, "status.podIP": HOST}
            return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
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


def rendered(values: Values) -> list[Object]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return Chart(process).objects(values)


def mounted(objects: list[Object], folder: Path, port: int) -> dict[str, Path]:
    """What pods find in their volumes; the gateway's port is another, since this machine has one network."""
    config = yaml.safe_load(cluster_text(objects))
    config["gateway"] |= {"host": HOST, "port": port}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
    passwords = folder / "passwords"
    passwords.mkdir()
    for secret in of_kind(objects, "Secret").values():
        for name, text in secret.get("stringData", {}).items():
            (folder / name).write_text(text)
        for name, text in secret.get("data", {}).items():
            (passwords / name).write_bytes(base64.b64decode(text))
    mounts = {"/etc/treadle-keys": folder, "/etc/treadle": folder, "/models": models_dir(), "/tmp": folder}
    return {**mounts, "/etc/redis-passwords": passwords}


async def check_answers(
    objects: list[Object], files: dict[str, Path], port: int, address: Callable[[Pod], str]
) -> None:
    """Run the pods, each with a Redis of this address, and ask them something.

    They listen on the ports from ``port`` on.
    """
    owners = [one for one in pod_templates(objects) if one[0] not in ("treadle-redis", "treadle-test")]
    assert len(owners) == NUM_PODS
    pods = [
        Pod(f"{owner}-0", pod["spec"]["containers"][0], port + number, files)
        for number, (owner, pod) in enumerate(owners, start=1)
    ]
    url = f"http://{HOST}:{port}/v1"
    with ExitStack() as stack:
        for pod in pods:
            stack.enter_context(pod.running(TREADLE_REDIS_URL=address(pod)))
        for pod in pods:
            wait_for(f"{pod.name} to be ready", pod.is_ready)
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            answer = await client.completions.create(model="smollm2-135m", prompt="Once upon a time", max_tokens=8)
            stream = await client.completions.create(
                model="smollm2-135m-b", prompt="Once upon a time", max_tokens=400, stream=True
            )
            await anext(aiter(stream))
            await stream.close()  # whoever leaves is cancelled
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        async with AsyncOpenAI(base_url=url, api_key="sk-another", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()


@pytest.mark.usefixtures("model_file")
async def test_what_the_chart_starts_is_a_cluster_that_answers(tmp_path: Path, redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()
    objects, port = rendered(VALUES), free_port_range(1 + NUM_PODS)
    await check_answers(objects, mounted(objects, tmp_path, port), port, lambda _: redis_url)


@pytest.mark.usefixtures("model_file")
@needs_waitaof
async def test_the_users_of_the_chart_are_enough_for_all_that_the_cluster_does(tmp_path: Path) -> None:
    """Users as the chart's own script writes them; at the end Redis tells whether anything was refused."""
    objects, port = rendered({**VALUES, "redis": {"acl": {"enabled": True}}}), free_port_range(1 + NUM_PODS)
    files = mounted(objects, tmp_path, port)
    write_users(objects, tmp_path)
    server = Server(tmp_path, "redis", ["--aclfile", str(tmp_path / "users.acl"), "--protected-mode", "no"])

    def address(pod: Pod) -> str:
        variables = pod.environment
        url = variables[REDIS_ENV].replace("$(TREADLE_REDIS_PASSWORD)", variables["TREADLE_REDIS_PASSWORD"])
        return url.replace("treadle-redis:6379", f"{HOST}:{server.port}")

    server.start()
    password = (tmp_path / "passwords" / "operator").read_text()
    try:
        await until(server.answers)
        with Redis(host=HOST, port=server.port, username="operator", password=password) as redis:
            before = num_denied(redis)
            await check_answers(objects, files, port, address)
            assert num_denied(redis) == before
            assert redis.exists(*(streams.state(service) for service in SERVICES)) == len(SERVICES)
            assert not redis.exists(streams.DEAD_LETTER)
    finally:
        server.kill()


def num_denied(redis: Redis) -> dict[str, int]:
    """What Redis refused to anybody, by why: a command, a key, a channel, a password."""
    denied = {name: count for name, count in redis.info("stats").items() if name.startswith("acl_access_denied")}
    assert denied
    return denied


def write_users(objects: list[Object], folder: Path) -> None:
    """What the chart's container for the users does, where its folders lie elsewhere."""
    pod = of_kind(objects, "StatefulSet")["treadle-redis"]["spec"]["template"]
    acl, passwords = folder / "acl", folder / "passwords"
    acl.mkdir()
    (acl / "users.acl").write_text(of_kind(objects, "ConfigMap")["treadle-redis-acl"]["data"]["users.acl"])
    *shell, script = pod["spec"]["initContainers"][0]["command"]
    places = {"/etc/redis-acl": acl, "/etc/redis-users": folder, "/etc/redis-passwords": passwords}
    for place, here in places.items():
        script = script.replace(place, str(here))
    subprocess.run([*shell, script], check=True)
