"""What a server was really asked, as MONITOR shows it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from redis.asyncio import Redis

END = "the action is over"


async def transactions(redis: Redis, *actions: Awaitable[None]) -> list[list[str]]:
    """Commands that were done in one step, an action each: between MULTI and its EXEC, or by one script."""
    found: list[list[str]] = []
    async with redis.monitor() as monitor:
        for action in actions:
            await action
            await redis.echo(END)
            seen: list[dict[str, Any]] = [await monitor.next_command()]
            while seen[-1]["command"] != f"ECHO {END}":
                seen.append(await monitor.next_command())
            names = [one["command"].split()[0] for one in seen]
            by_script = [name for name, one in zip(names, seen, strict=True) if one["client_type"] == "lua"]
            assert names.count("MULTI") + any(by_script) == 1, names
            found.append(by_script or names[names.index("MULTI") + 1 : names.index("EXEC")])
    return found
