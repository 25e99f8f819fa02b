"""What stands between the scheduler's wishes and a provider."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from services.scheduler.providers.keeper import PoolKeeper, keep_pools
from services.scheduler.providers.provider import ProviderError, make_provider
from shared.bus import streams
from shared.bus.bus import StreamReader
from shared.config.config import ADMIN_SERVICES, ClusterConfig, ConfigError
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.messages.codec import FIELD, encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import Scale, Scaled
from shared.service.background.tasks import cancel_all
from tests.ports import free_port_range
from tests.redis.waiting import until

POOL = NodePool(name="p", max_nodes=9)


class Machine:
    """A provider of nothing; a call lasts until the test lets it go on."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.error = ""
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def scale(self, pool: NodePool, num_nodes: int) -> int:
        assert pool == POOL
        self.calls.append(num_nodes)
        assert self.may_go_on.wait(20)
        if self.error:
            raise ProviderError(self.error)
        return num_nodes


class Kept:
    def __init__(self, redis: Redis) -> None:
        self.machine = Machine()
        self.keeper = PoolKeeper(POOL, self.machine, redis)
        self.inbox = StreamReader(redis, streams.SCHEDULER)
        self.answers: list[Message] = []

    async def have(self, num_answers: int) -> list[Message]:
        async def are_there() -> bool:
            self.answers += await self.inbox.read(block_ms=1)
            return len(self.answers) >= num_answers

        await until(are_there)
        return self.answers


@pytest.fixture
async def kept(redis: Redis) -> AsyncIterator[Kept]:
    kept = Kept(redis)
    await kept.inbox.start()
    task = asyncio.create_task(kept.keeper.run())
    try:
        yield kept
    finally:
        kept.machine.may_go_on.set()
        await cancel_all([task])


async def test_a_wish_is_carried_out_and_answered(kept: Kept) -> None:
    kept.keeper.wish(2)
    assert await kept.have(1) == [Scaled(pool="p", num_nodes=2)]


async def test_while_one_wish_is_carried_out_only_the_newest_of_the_others_counts(kept: Kept) -> None:
    kept.machine.may_go_on.clear()
    kept.keeper.wish(1)

    async def has_begun() -> bool:
        return kept.machine.calls == [1]

    await until(has_begun)
    for number in (2, 3, 4):
        kept.keeper.wish(number)
    kept.machine.may_go_on.set()
    assert await kept.have(2) == [Scaled(pool="p", num_nodes=1), Scaled(pool="p", num_nodes=4)]
    assert kept.machine.calls == [1, 4]


async def test_what_went_wrong_is_told_and_the_next_wish_tries_again(kept: Kept) -> None:
    kept.machine.error = "no room"
    kept.keeper.wish(1)
    await kept.have(1)
    kept.machine.error = ""
    kept.keeper.wish(1)
    assert await kept.have(2) == [Scaled(pool="p", num_nodes=0, error="no room"), Scaled(pool="p", num_nodes=1)]


async def test_only_the_active_instance_acts(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CONFIG", f"{tmp_path}/cluster.yaml")
    config = ClusterConfig(nodes=[], pools=[POOL], scaling=ScalingOptions(provider="process"), data_dir=tmp_path)
    inbox = StreamReader(redis, streams.SCHEDULER)
    await inbox.start()
    answers: dict[bool, int] = {}
    for is_active in (False, True):
        task = asyncio.create_task(keep_pools(config, redis, lambda: is_active))  # noqa: B023 (ends with the loop)
        found: list[Message] = []

        async def are_there() -> bool:
            """The provider begins to read at some time, so it is told until it answers."""
            await redis.xadd(streams.PROVIDER, {FIELD: encode(Scale(pool="p", num_nodes=0))})
            found.extend(await inbox.read(block_ms=1))  # noqa: B023
            return bool(found)  # noqa: B023

        try:
            await until(are_there, 20.0 if is_active else 1.0)
        except TimeoutError:
            assert not is_active
        finally:
            await cancel_all([task])
        answers[is_active] = len(found)
    assert answers[False] == 0
    assert answers[True] > 0


async def test_without_a_provider_there_is_nothing_to_do(redis: Redis) -> None:
    await keep_pools(ClusterConfig(pools=[POOL]), redis, lambda: True)


def test_docker_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClusterConfig(pools=[POOL], scaling=ScalingOptions.model_validate({"provider": "docker", "docker": {}}))
    monkeypatch.delenv("TREADLE_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="docker needs TREADLE_CONFIG"):
        make_provider(config, "redis://unused")
    monkeypatch.setenv("TREADLE_CONFIG", "/etc/treadle/cluster.yaml")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no Docker daemon answers"):
        make_provider(config, "redis://unused")


def test_a_scheduler_whose_provider_cannot_begin_ends_with_one_line(redis_url: str, tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    scaling = "{provider: docker, docker: {}}"
    port = free_port_range(len(ADMIN_SERVICES) + 1)
    config.write_text(f"{{nodes: [], pools: [{{name: p}}], scaling: {scaling}, admin_port: {port}}}")
    done = subprocess.run(
        [sys.executable, "-m", "services.scheduler"],
        env={
            **os.environ,
            "TREADLE_CONFIG": str(config),
            "TREADLE_REDIS_URL": redis_url,
            "DOCKER_HOST": "tcp://127.0.0.1:1",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "scaling.provider: no Docker daemon answers" in done.stderr
    assert "Traceback" not in done.stderr
