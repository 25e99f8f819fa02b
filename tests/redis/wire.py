"""What a server was really asked, as MONITOR shows it."""

from __future__ import annotations

from collections.abc import Awaitable

from redis.asyncio import Redis


async def transactions(redis: Redis, *actions: Awaitable[None]) -> list[list[str]]:
    """Commands between each MULTI and its EXEC, one transaction an action."""
    found: list[list[str]] = []
    async with redis.monitor() as monitor:
        for action in actions:
            await action
            commands = [""]
            while commands[-1] != "EXEC":
                commands.append((await monitor.next_command())["command"].split()[0])
            found.append(commands[commands.index("MULTI") + 1 : -1])
    return found
