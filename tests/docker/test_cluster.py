"""The images are built, the cluster of docker-compose.yml runs, and a node's container dies under a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from shared.config.config import ClusterConfig
from tests.docker.containers import Containers
from tests.docker.daemon import run
from tests.e2e.cluster import wait_for
from tests.e2e.traffic import PROMPTS, Answer, Ask, stream

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

MODELS = [model.name for model in ClusterConfig().models]
NODES = ["node-0", "node-1"]
ANSWER_TIMEOUT_S = 200
LONG = 600  # tokens; seconds of work, so that a kill meets the stream under way
NUM_BEFORE = 4  # chunks that a stream must have had
MAX_BYTES_OVER_BASE = 250_000_000
ROOMS = {  # image -> the packages of ours that it holds
    "gateway": {"shared", "gateway"},
    "services": {"shared", "services", "cli"},
    "gpu-node": {"shared", "gpu_node"},
}


@pytest.fixture
async def client(containers: Containers) -> AsyncIterator[AsyncOpenAI]:
    url = f"{containers.url}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=ANSWER_TIMEOUT_S) as client:
        yield client


@pytest.mark.parametrize("model", MODELS)
async def test_it_answers(client: AsyncOpenAI, model: str) -> None:
    question = "What is the capital of France?"
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0
    )
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


async def test_a_stream_goes_on_when_its_nodes_container_is_killed(client: AsyncOpenAI, containers: Containers) -> None:
    ask = Ask(MODELS[0], PROMPTS[0], LONG, slo="batch-1")
    undisturbed = Answer()
    await stream(client, ask, undisturbed)

    answer = Answer()
    task = asyncio.create_task(stream(client, ask, answer))
    await asyncio.to_thread(wait_for, "the first tokens", lambda: answer.num_chunks >= NUM_BEFORE)
    [node] = await asyncio.to_thread(busy_nodes, containers)
    await asyncio.to_thread(containers.kill, node)
    num_chunks = answer.num_chunks
    await task

    assert num_chunks < answer.num_chunks, "the stream had ended before its node was killed"
    assert (answer.text, answer.num_tokens) == (undisturbed.text, LONG)
    await asyncio.to_thread(containers.up)  # and the node is back
    assert containers.answers(node) == "ready\n"


async def test_kv_goes_from_container_to_container(client: AsyncOpenAI, containers: Containers) -> None:
    ask = Ask(MODELS[0], PROMPTS[1], LONG, slo="batch-1")
    undisturbed = Answer()
    await stream(client, ask, undisturbed)
    before = {name: computed_again(containers, name) for name in NODES}

    answer = Answer()
    task = asyncio.create_task(stream(client, ask, answer))
    await asyncio.to_thread(wait_for, "the first tokens", lambda: answer.num_chunks >= NUM_BEFORE)
    [node] = await asyncio.to_thread(busy_nodes, containers)
    [other] = [name for name in NODES if name != node]
    await asyncio.to_thread(containers.stop, node)
    await task

    assert (answer.text, answer.num_tokens) == (undisturbed.text, LONG)
    assert containers.metric(other, "treadle_kv_transfer_bytes_total", direction="in") > 0
    assert containers.metric(other, "treadle_kv_transfer_failures_total") == 0
    assert computed_again(containers, other) == before[other]
    await asyncio.to_thread(containers.up)  # and the node is back
    assert containers.answers(node) == "ready\n"


def computed_again(containers: Containers, node: str) -> float:
    """How many requests had lost their KV when they came to this node."""
    return containers.metric(node, "treadle_resumed_requests_total", tier="none")


def busy_nodes(containers: Containers) -> list[str]:
    return [node for node in NODES if containers.status(node)["num_running"]]


@pytest.mark.parametrize("name", ["gateway", "queue-manager", "scheduler", "kv-manager", *NODES])
def test_processes_are_confined(containers: Containers, name: str) -> None:
    state = containers.run_in(name, "cat", "/proc/1/status").stdout
    fields = dict(line.split(":", 1) for line in state.splitlines())
    assert fields["Uid"].split() == ["10001"] * 4
    assert int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert "Read-only file system" in containers.run_in(name, "touch", "/opt/treadle/file").stderr


@pytest.mark.parametrize("name", ["gateway", "scheduler", "node-0"])
def test_no_image_has_a_compiler_or_torch(containers: Containers, name: str) -> None:
    look = (
        "import json, shutil, importlib.util as u;"
        "print(json.dumps([shutil.which('cc'), shutil.which('g++'), u.find_spec('torch') is not None]))"
    )
    assert json.loads(containers.run_in(name, "python", "-c", look).stdout) == [None, None, False]


@pytest.mark.parametrize(("executor", "device"), [("reference", "cpu"), ("cuda", "cuda:0")])
def test_a_node_that_needs_torch_ends_with_what_to_take(containers: Containers, executor: str, device: str) -> None:
    """In the image that has none, beside the cluster: in a database and at a port of its own."""
    script = (
        f"echo \"nodes: [{{name: other, executor: {executor}, device: '{device}'}}]\" > /tmp/other.yaml;"
        "export TREADLE_CONFIG=/tmp/other.yaml TREADLE_REDIS_URL=redis://redis:6379/1 TREADLE_ADMIN_PORT=9500;"
        "exec python -m gpu_node.agent --node other"
    )
    done = containers.run_in("node-0", "sh", "-c", script)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].endswith(
        f"node 'other': executor: {executor} computes with torch, which is not installed here: "
        "run `make setup-torch`, or take the image gpu-node-cuda"
    )


@pytest.mark.parametrize("image", ROOMS)
def test_an_image_holds_its_own_packages_and_no_source_of_the_others(containers: Containers, image: str) -> None:
    name = {"gateway": "gateway", "services": "scheduler", "gpu-node": "node-0"}[image]
    assert set(containers.run_in(name, "ls", "/opt/treadle/src").stdout.split()) == ROOMS[image]


@pytest.mark.parametrize("provider", ["docker", "kubernetes"])
def test_the_scheduler_can_start_nodes_where_it_runs_in_a_container(containers: Containers, provider: str) -> None:
    module = f"services.scheduler.providers.{provider}"
    said = containers.run_in("scheduler", "python", "-c", f"import {module}; print({module}.make.__name__)")
    assert (said.stdout, said.stderr) == ("make\n", "")


@pytest.mark.parametrize("image", ROOMS)
def test_an_image_is_small(containers: Containers, image: str) -> None:
    base = containers.environment["BASE_IMAGE"]
    assert size_bytes(f"treadle-test/{image}:dev") - size_bytes(base) <= MAX_BYTES_OVER_BASE


def size_bytes(image: str) -> int:
    return int(run("docker", "image", "inspect", "--format", "{{.Size}}", image).stdout)


def test_every_container_is_healthy(containers: Containers) -> None:
    def unhealthy() -> list[str]:
        ids = {name: container for name, container in containers.ids().items() if name != "models"}
        said = run("docker", "inspect", "--format", "{{.State.Health.Status}}", *ids.values()).stdout.split()
        return [name for name, health in zip(ids, said, strict=True) if health != "healthy"]

    containers.wait_for("all containers are healthy", lambda: not unhealthy())


def test_down_leaves_nothing(containers: Containers) -> None:
    containers.down()
    label = f"label=com.docker.compose.project={containers.project}"
    for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert run("docker", *kind, "--quiet", "--filter", label).stdout == "", kind
