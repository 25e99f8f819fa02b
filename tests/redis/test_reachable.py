"""What an operator reads when there is no Redis: where, why, what to do, and never a password."""

from __future__ import annotations

import pytest

from cli.cluster.processes.ports import free_port
from shared.bus.bus import RedisUnreachableError, check_reachable, connect
from tests.redis.own_server import HOST, OwnServer

SECRET = "s3cr3t-word"
REMEDY = "start one there or set TREADLE_REDIS_URL"


async def refusal(url: str) -> str:
    async with connect(url) as redis:
        with pytest.raises(RedisUnreachableError) as caught:
            await check_reachable(redis)
    return str(caught.value)


async def test_one_that_answers_is_fine(redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await check_reachable(redis)


async def test_nobody_listens() -> None:
    port = free_port(HOST)
    text = await refusal(f"redis://user:{SECRET}@{HOST}:{port}/0")
    assert text.startswith(f"no Redis answers at redis://{HOST}:{port}/0 (")
    assert text.endswith(REMEDY)
    assert SECRET not in text
    assert "\n" not in text


@pytest.mark.parametrize("credentials", ["", f":{SECRET}@", f"nobody:{SECRET}@"], ids=["none", "wrong", "wrong user"])
async def test_a_server_that_refuses_us(own_server: OwnServer, credentials: str) -> None:
    async with connect(own_server.url) as redis:
        await redis.config_set("requirepass", "another")
    text = await refusal(f"redis://{credentials}{HOST}:{own_server.port}/0")
    assert text.startswith(f"no Redis answers at redis://{HOST}:{own_server.port}/0 (")
    assert SECRET not in text
    assert text.endswith(REMEDY)
