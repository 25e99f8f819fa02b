"""An engine hangs while its agent lives: it is ended, and its streams go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.traffic import Answer, Ask, openai_client, stream, underway

STEP_TIMEOUT_S = 3.0
MAX_TOKENS = 300


@pytest.fixture
def predicted_cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster.predicted(
        tmp_path,
        engine={"step_timeout_s": STEP_TIMEOUT_S},
        slo_classes={"batch": {"deadline_s": 3600}},
        gateway={"default_slo": "batch"},
    )
    with cluster.running():
        yield cluster


async def test_a_hung_engine_is_ended_and_its_streams_go_on(predicted_cluster: Cluster) -> None:
    cluster = predicted_cluster
    answer = Answer()
    async with openai_client(cluster) as client:
        task = asyncio.create_task(stream(client, Ask("chat", "he hello", MAX_TOKENS, "batch"), answer))
        await underway([answer], [task])
        before = cluster.status("node-0")
        os.kill(before["engine_pid"], signal.SIGSTOP)
        await task
    assert answer.num_tokens == MAX_TOKENS
    assert cluster.status("node-0")["epoch"] != before["epoch"]
    assert "engine hangs, killed" in cluster.logs()["node-0.log"]
