"""Answers that are kept, with the conversations that led to them, so that a client sends only what is new.

Each is kept whole and not as a chain: what was answered earlier may be dropped, and a client may go on from the same
answer twice. All gateways find them, in Redis, whose scripts bound how long and how many bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from msgspec import Raw, Struct
from redis.exceptions import RedisError

from gateway.inflight.queue_port import QueueUnavailableError
from shared.bus import scripts, streams
from shared.bus.system_writes import RunsScripts
from shared.config.config import ClusterConfig

MAX_RESPONSE_BYTES = 1 << 20
"""Of one, with its conversation; a longer one is not kept. Some 200,000 tokens of English."""
MAX_COUNTED_OUT = 64  # of those whose time is over, by one script
PREFIX = streams.response("")

_log = structlog.get_logger(__name__)


class KeptResponse(Struct, frozen=True):
    """One of them."""

    tenant: str
    """The tenant that it belongs to."""
    num_input: int
    """How many of the items were given, and not answered."""
    items: list[dict[str, Any]]
    """The conversation as items, from its beginning on, with those of the answer."""
    answer: Raw
    """As its client got it, in JSON."""


class KeptResponses:
    """Where they are: in Redis."""

    def __init__(self, redis: RunsScripts, keep_s: float, max_bytes: int) -> None:
        self._keep = redis.register_script(scripts.KEEP_RESPONSE)
        self._find = redis.register_script(scripts.FIND_RESPONSE)
        self._forget = redis.register_script(scripts.FORGET_RESPONSE)
        self._limits = (int(keep_s * 1000), max_bytes, MAX_COUNTED_OUT)

    async def keep(self, response_id: str, response: KeptResponse) -> bool:
        """Whether it is kept now; why not stands in the log."""
        data = msgspec.json.encode(response)
        if len(data) > MAX_RESPONSE_BYTES:
            _log.warning("response not kept", response_id=response_id, why="too long", num_bytes=len(data))
            return False
        try:
            await self._keep(keys=_INDEX, args=[PREFIX, response_id, data, *self._limits])
        except (RedisError, OSError) as error:
            _log.warning("response not kept", response_id=response_id, why=str(error) or type(error).__name__)
            return False
        return True

    async def find(self, tenant: str, response_id: str) -> tuple[KeptResponse, int] | None:
        """With its bytes; None where there is none of this tenant. `QueueUnavailableError`."""
        try:
            data = await self._find(keys=[streams.response(response_id)], args=[])
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error
        if data is None:
            return None
        found = msgspec.json.decode(data, type=KeptResponse)
        return (found, len(data)) if found.tenant == tenant else None

    async def forget(self, response_id: str) -> bool:
        """Whether it was there. `QueueUnavailableError`."""
        try:
            return bool(await self._forget(keys=_INDEX, args=[PREFIX, response_id]))
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error


def kept_responses(redis: RunsScripts, config: ClusterConfig) -> KeptResponses | None:
    """As the configuration says; None where it says nothing."""
    options = config.gateway
    if options.keep_responses_s is None:
        return None
    return KeptResponses(redis, options.keep_responses_s, options.kept_responses_bytes)


_INDEX = [streams.RESPONSES, streams.RESPONSES_BYTES]
