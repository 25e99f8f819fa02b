"""Clusters for the tests of this folder that ask for them: a real one, whole and idle again after each test; a small
predicted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.collector import Collector, collecting
from tests.e2e.traffic import MAX_TOKENS, PROMPTS, Ask, complete, openai_client

TEST_TIMEOUT_S = 300
HERE = Path(__file__).parent
SHARED = {"whole_cluster", "small_cluster"}
"""Clusters of several files, whose tests one process runs for that."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark in (pytest.mark.e2e, pytest.mark.timeout(TEST_TIMEOUT_S)):
                item.add_marker(mark)
            for shared in SHARED & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.xdist_group(f"{shared} of tests/e2e"))


@pytest.fixture(autouse=True)
def _needs_redis(redis_program: Path) -> None:
    """Every cluster of this folder has a real server."""


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def own_collector() -> Iterator[Collector]:
    """For a cluster of the test's own: it has no spans of the session's cluster."""
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="package")
def whole_cluster(
    tmp_path_factory: pytest.TempPathFactory, model_file: Path, collector: Collector
) -> Iterator[Cluster]:
    """Two models on two nodes, each of which runs three requests at a time, so that others queue."""
    models = [{"name": name, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256} for name in ("first", "second")]
    cluster = Cluster.create(
        tmp_path_factory.mktemp("e2e"),
        models=[model | {"max_model_len": 8192} for model in models],
        nodes=[{"name": "node-0"}, {"name": "node-1"}],
        engine={"max_num_seqs": 3, "kv_cache_bytes": 512 << 20},
        gateway={"max_body_bytes": 64 << 10, "keep_responses_s": 600},
        otlp_endpoint=collector.url,
    )
    cluster.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"  # ms between two exports of spans
    with cluster.running():
        yield cluster
        cluster.wait_idle()


@pytest.fixture
def cluster(whole_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The session's cluster, complete and idle before and after."""
    if whole_cluster.missing():
        whole_cluster.up()
    yield whole_cluster
    failed = request.session.testsfailed
    try:
        if whole_cluster.missing():
            whole_cluster.up()
        whole_cluster.wait_idle(is_told=False)
    except AssertionError:
        failed += 1
        raise
    finally:
        if failed:
            print(whole_cluster.log_tails())  # noqa: T201 - pytest shows it with the failure


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(cluster) as client:
        yield client


@pytest.fixture(scope="package")
def undisturbed(whole_cluster: Cluster) -> dict[str, str]:
    """Greedy answers by prompt, the same on both models (and nodes) and in different batches."""

    async def ask() -> dict[str, str]:
        async with openai_client(whole_cluster) as client:
            asks = [Ask(model, prompt, MAX_TOKENS) for model in whole_cluster.models for prompt in PROMPTS]
            answers = await complete(client, asks)
        texts = [answer.text for answer in answers]
        assert texts[: len(PROMPTS)] == texts[len(PROMPTS) :]
        assert {answer.num_tokens for answer in answers} == {MAX_TOKENS}
        return dict(zip(PROMPTS, texts, strict=False))

    with ThreadPoolExecutor(1) as thread:  # a loop of its own, whatever the test's loop does
        return thread.submit(asyncio.run, ask()).result()


@pytest.fixture(scope="package")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One predicted node that runs two requests at a time, long ones for many seconds, and lets nobody overtake.

    Nobody kills any of it.
    """
    cluster = Cluster.predicted(
        tmp_path_factory.mktemp("small"),
        engine={"max_num_seqs": 2},
        slo_classes={
            "quick": {"ttft_s": 1, "late": "refuse"},
            "interactive": {"ttft_s": 60},
            "batch-1": {"deadline_s": 600},
            "batch": {"deadline_s": 3600},
        },
        gateway={"default_slo": "batch"},
        queue={"operations": {"evict": False}},
    )
    with cluster.running():
        yield cluster


@pytest.fixture
def predicted(small_cluster: Cluster) -> Cluster:
    """The small cluster, idle."""
    small_cluster.wait_idle()
    return small_cluster
