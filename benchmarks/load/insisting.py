"""Clients of some tenants that ask one after the other for ever, in a process of their own.

What a crowd costs its own process is then not in what is measured beside it. Whoever is told to come again later does.
SIGTERM prints, as one JSON object by tenant, every answer that was complete (when, in seconds of the machine's
monotonic clock, and its tokens) and every refusal (when).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from random import Random
from typing import Any

import aiohttp
import uvloop

NUM_TOKENS, NUM_PROMPT_TOKENS = 64, 100
BIG_BODY_BYTES, BIG_BODY_EVERY = 1 << 20, 20


def body(draw: Random, *, stream: bool, num_extra: int = 0) -> dict[str, Any]:
    """A completion of a prompt that no cache knows; ``num_extra`` bytes more, which ask for nothing."""
    prompt = [draw.randrange(1_000, 40_000) for _ in range(NUM_PROMPT_TOKENS)]
    asked = {"model": "m", "prompt": prompt, "max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": stream}
    return asked | ({"user": "x" * num_extra} if num_extra else {})


class Crowd:
    """Clients, and what they were told."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, has_big: bool) -> None:
        self._session = session
        self._url = url
        self._has_big = has_big
        self._draw = Random(0)
        self.told: dict[str, dict[str, list[Any]]] = {}

    async def insist(self, tenant: str, number: int) -> None:
        """One after the other, for ever."""
        headers = {"Authorization": f"Bearer key-{tenant}"}
        num_extra = BIG_BODY_BYTES if self._has_big and number % BIG_BODY_EVERY == 0 else 0
        told = self.told.setdefault(tenant, {"answers": [], "refusals": []})
        while True:
            asked = body(self._draw, stream=False, num_extra=num_extra)
            async with self._session.post(self._url, json=asked, headers=headers) as response:
                if response.status == 200:
                    usage = (await response.json())["usage"]
                    told["answers"].append((time.monotonic(), usage["completion_tokens"]))
                    continue
                told["refusals"].append(time.monotonic())
                retry_s = float(response.headers.get("Retry-After", "1"))
            await asyncio.sleep(retry_s)


async def _run(options: argparse.Namespace) -> dict[str, Any]:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        crowd = Crowd(session, f"{options.url}/v1/completions", has_big=options.big)
        asking = [
            asyncio.create_task(crowd.insist(tenant, number))
            for tenant in options.tenants
            for number in range(options.clients)
        ]
        stop = asyncio.create_task(over.wait())
        done, _ = await asyncio.wait([*asking, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stop}:
            task.result()  # it insists for ever, unless it fails
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return crowd.told


def main() -> None:
    """Parse, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--tenants", nargs="+", required=True)
    parser.add_argument("--clients", type=int, required=True, help="of each tenant")
    parser.add_argument("--big", action="store_true", help="one in twenty sends a body of a megabyte")
    json.dump(uvloop.run(_run(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
