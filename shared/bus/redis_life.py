"""Which server answers, and whether it is another one than before.

A Redis that was killed comes back under another run id, and so does a replica that has taken over: both may lack the
end of what was written. Who keeps state outside Redis asks now and then, and says again what it has
(`shared.messages.requests.inventories`).
"""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis


class RedisLife:
    """The run id of the server behind a client. All calls raise `RedisError` while there is none."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._settled = ""
        self._seen = ""

    async def begin(self) -> None:
        """From now on this server is the known one. To be called before anything is written that it could lose."""
        self._settled = self._seen = await self._run_id()

    async def is_another(self) -> bool:
        """Whether another server answers than the known one; so it stays until `settle`."""
        self._seen = await self._run_id()
        return self._seen != self._settled

    def settle(self) -> None:
        """The server that `is_another` saw has been told everything. Should it be yet another by now, that is seen."""
        self._settled = self._seen

    async def _run_id(self) -> str:
        server: Any = await self._redis.info("server")
        return str(server["run_id"])
