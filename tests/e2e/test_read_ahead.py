"""KV of long prompts is read by the node that will decode while the other one computes the rest; no token changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.alone import answers_alone
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream

pytestmark = pytest.mark.usefixtures("model_file")

WEIGHTS = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 1024}
STEP_TOKENS = 64
FILLER = " one two three four five six seven eight nine ten" * 66
ASKS = [Ask("smol", prompt + FILLER, 60) for prompt in PROMPTS]
"""Some 670 tokens each, which begin differently: eleven steps. Each is asked once, since prompts stay cached."""
BOTH, WHILE_DYING = slice(0, 2), {"prefill": slice(2, 3), "decode-0": slice(3, 4)}
LEAVING = Ask("smol", "Nobody waits for it:" + FILLER, 60)
GONE_S = 60.0
"""Half of what an image has that is forgotten."""
DECODE = ["decode-0", "decode-1"]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node that prefills, two that decode."""
    cluster = Cluster.create(
        tmp_path_factory.mktemp("read-ahead"),
        models=[{"name": "smol", **WEIGHTS}],
        nodes=[{"name": "prefill", "phases": "prefill"}, *({"name": one, "phases": "decode"} for one in DECODE)],
        engine={
            "max_num_seqs": 4,
            "kv_cache_bytes": 128 << 20,
            "step_tokens": STEP_TOKENS,
            "evicted_kv_bytes": 512 << 20,
        },
        queue={"operations": {"fetch": False}},  # which would bring prompts back that both nodes have
    )
    with cluster.running():
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """All nodes live and have nothing to do."""
    shared_cluster.up()
    shared_cluster.wait_idle()
    return shared_cluster


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """What `ASKS` are answered by an engine that does all of it."""
    return answers_alone({"name": "smol", **WEIGHTS}, ASKS)


def counted(cluster: Cluster, metric: str, **labels: str) -> float:
    """By the nodes that decode, together."""
    return sum(cluster.metric(node, metric, **labels) for node in DECODE)


async def test_a_long_prompt_is_read_while_it_is_computed(cluster: Cluster, expected: list[str]) -> None:
    async with openai_client(cluster) as client:
        answers = await complete(client, ASKS[BOTH])
    assert [answer.text for answer in answers] == expected[BOTH]
    cluster.wait_idle()
    ahead = counted(cluster, "treadle_kv_transfer_ahead_bytes_total")
    assert 0 < ahead <= counted(cluster, "treadle_kv_transfer_bytes_total", direction="in")
    assert counted(cluster, "treadle_resumed_requests_total", tier="evicted") >= len(ASKS[BOTH])
    await asyncio.to_thread(wait_for, "no image", lambda: not cluster.status("prefill")["given_images"], GONE_S)


async def test_a_client_leaves_while_kv_goes_over(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        task = asyncio.create_task(stream(client, LEAVING, Answer()))
        await asyncio.to_thread(wait_for, "an image to read", lambda: cluster.status("prefill").get("given_images"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    cluster.wait_idle()
    await asyncio.to_thread(wait_for, "no image", lambda: not cluster.status("prefill")["given_images"], GONE_S)


@pytest.mark.parametrize("dying", WHILE_DYING)
async def test_a_node_dies_while_kv_goes_over(cluster: Cluster, expected: list[str], dying: str) -> None:
    """Of the nodes that decode, the first by name is told to read: nothing tells them apart.

    What it had pulled and not fetched is given up at the other node.
    """
    async with openai_client(cluster) as client:
        (ask,), answer = ASKS[WHILE_DYING[dying]], Answer()
        task = asyncio.create_task(stream(client, ask, answer))
        await asyncio.to_thread(wait_for, "an image to read", lambda: cluster.status("prefill").get("given_images"))
        cluster.kill(dying)
        await task
    assert [answer.text] == expected[WHILE_DYING[dying]]
    assert cluster.missing() == [dying]
    if dying != "prefill":
        await asyncio.to_thread(wait_for, "no image", lambda: not cluster.status("prefill")["given_images"], GONE_S)
