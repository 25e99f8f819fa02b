"""Processes are replaced as an upgrade replaces them: a new one beside the old one, which is then asked to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from openai import AsyncOpenAI

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.process_plan import SERVICES
from tests.e2e.cluster import HOST, PROBE_TIMEOUT_S, Cluster, runs, wait_for
from tests.e2e.test_deaths import check_answers
from tests.e2e.traffic import API_KEY, MAX_TOKENS, PROMPTS, Answer, Ask, Load, stream, underway


@contextmanager
def beside(cluster: Cluster, module: str, port: int, config: Path, **environment: str) -> Iterator[str]:
    """Another process of the cluster, not known to the command; gives its address once it is ready."""
    settings = {
        "TREADLE_CONFIG": str(config),
        "TREADLE_REDIS_URL": f"redis://{HOST}:{cluster.record['redis_port']}/0",
        **environment,
    }
    url = f"http://{HOST}:{port}"
    with (
        (cluster.folder / f"{module}-beside.log").open("wb") as log,
        subprocess.Popen([sys.executable, "-m", module], env=os.environ | settings, stderr=log) as process,
    ):
        try:
            wait_for(f"a second {module}", lambda: answer(url, "/readyz"))
            yield url
        finally:
            process.terminate()


def answer(url: str, path: str) -> str:
    """What it says; empty without an answer, or a good one."""
    try:
        with urlopen(url + path, timeout=PROBE_TIMEOUT_S) as response:
            text: str = response.read().decode()
            return text
    except (URLError, OSError):
        return ""


def leads(url: str) -> dict[str, Any]:
    """What a service says of itself; nothing while it stands by."""
    status: dict[str, Any] = json.loads(answer(url, "/status") or "{}")
    return status


def end(pid: int) -> None:
    """SIGTERM, and wait for the end."""
    os.kill(pid, signal.SIGTERM)
    wait_for(f"the end of process {pid}", lambda: not runs(pid))


async def test_services_are_replaced_and_streams_go_on(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    config = cluster.folder / "data" / "run" / "config.yaml"
    pids, load = cluster.pids(), Load.on(cluster.models)
    with ExitStack() as stack:
        others = {}
        for name, module in SERVICES.items():
            port = free_port(HOST)
            settings = {"TREADLE_ADMIN_PORT": str(port), "TREADLE_INSTANCE": f"{name}-new"}
            others[name] = stack.enter_context(beside(cluster, module, port, config, **settings))
            assert leads(others[name]) == {}, "ready, but it stands by"

        def replace() -> None:
            for name, url in others.items():
                end(pids[name])
                wait_for(f"the new {name}'s lead", partial(leads, url))

        failures = await load.disturbed(client, cluster, lambda: asyncio.to_thread(replace))
        load.check(failures, undisturbed)
        await check_answers(client, cluster, undisturbed)
        await asyncio.to_thread(cluster.up)  # as standbys: they are ready beside those that lead
    for name in SERVICES:
        await asyncio.to_thread(wait_for, f"the old {name}'s lead", partial(cluster.status, name))


async def test_a_gateway_is_replaced_and_its_streams_end_in_order(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    values = yaml.safe_load((cluster.folder / "data" / "run" / "config.yaml").read_text())
    values["gateway"]["port"] = port = free_port(HOST)
    config = cluster.folder / "new-gateway.yaml"
    config.write_text(yaml.safe_dump(values))
    old, answers = Ask(cluster.models[0], PROMPTS[0], MAX_TOKENS), [Answer()]
    admin_port = free_port(HOST)
    with beside(cluster, "gateway", admin_port, config, TREADLE_ADMIN_PORT=str(admin_port)):
        task = asyncio.create_task(stream(client, old, answers[0]))
        await underway(answers, [task])
        await asyncio.to_thread(end, cluster.pids()["gateway"])
        await task
        assert (answers[0].num_tokens, answers[0].text) == (MAX_TOKENS, undisturbed[old.prompt])
        async with AsyncOpenAI(base_url=f"http://{HOST}:{port}/v1", api_key=API_KEY, max_retries=0) as other:
            fresh = Answer()
            await stream(other, Ask(cluster.models[1], PROMPTS[1], 8), fresh)
        assert undisturbed[PROMPTS[1]].startswith(fresh.text)
        assert fresh.num_tokens == 8
