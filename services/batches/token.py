"""The secret by which gateways and the batch service know each other: made once, kept in the folder, told in Redis."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.batches.store.folder import write_whole
from shared.bus import streams

TELL_S = 5.0  # a Redis that was emptied knows it again within this time
_log = structlog.get_logger()


def own_token(folder: Path) -> str:
    """The one of the folder; made where there is none."""
    path = folder / "token"
    if not path.exists():
        write_whole(path, secrets.token_hex(32).encode())
    return path.read_text("ascii")


async def tell(redis: Redis, token: str) -> None:
    """Write it to Redis, if that is there: a gateway that asks before would find the one of another folder."""
    try:
        await redis.set(streams.BATCH_TOKEN, token)
    except (RedisError, OSError) as error:
        _log.warning("token_not_told", problem=str(error))


async def keep_told(redis: Redis, token: str) -> None:
    """Write it again and again, for ever."""
    while True:
        await asyncio.sleep(TELL_S)
        await tell(redis, token)
