"""How Redis is: how full its memory, and whether it can write its disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

ADMITTED_SHARE = 0.8  # of maxmemory: beyond it gateways take no new request, so that those accepted find room to end

DISK_OPERATIONS = (LOG, REWRITE, SNAPSHOT) = ("log", "rewrite", "snapshot")
_STATUS = {LOG: "aof_last_write_status", REWRITE: "aof_last_bgrewrite_status", SNAPSHOT: "rdb_last_bgsave_status"}


@dataclass(frozen=True, slots=True)
class RedisHealth:
    """At one moment."""

    used_bytes: int = 0
    """What counts towards the limit: all that is kept, without what only waits to be written to the log."""
    max_bytes: int = 0
    """`maxmemory`; 0 where there is none."""
    failing: frozenset[str] = frozenset()
    """Those of DISK_OPERATIONS that failed when tried last. While the log cannot be written, nothing is taken."""

    @property
    def has_room(self) -> bool:
        """Whether new requests may come."""
        return not self.max_bytes or self.used_bytes < ADMITTED_SHARE * self.max_bytes


async def look(redis: Redis) -> RedisHealth:
    """Ask once; raises `RedisError`."""
    found: dict[str, Any] = await redis.info("memory", "persistence")
    return RedisHealth(
        used_bytes=found["used_memory"] - found["mem_not_counted_for_evict"],
        max_bytes=found["maxmemory"],
        failing=frozenset(operation for operation, status in _STATUS.items() if found[status] != "ok"),
    )
