"""The cluster behind a gateway, as far as the gateway sees it: whatever is submitted is answered through Redis.

Reads the queue's inbox as the queue manager does, and writes `Tokens` into the gateway's token stream as nodes do:
every ``step_s`` a node has one more token for each of its requests, all of them in one message. There is no queue,
nothing is computed, and a request has its first token with the next step of its node. So it costs a small part of what
nodes, queue manager and scheduler cost, and the gateway is what is short.

SIGTERM prints, as one JSON object by request id, the seconds from the reading of a submit to the sending of its first
token: what is no fault of the gateway's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import uvloop
from redis.asyncio import Redis

from shared.bus import streams
from shared.bus.bus import connect
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.requests.requests import Cancel, Chunk, Submit, Tokens

TOKENS = (253, 254, 260, 281, 282, 284, 288, 314, 325, 335)  # common words of the vocabulary
READ_BLOCK_MS = 1_000
MAX_READ_ENTRIES = 4_096
TRIM_EVERY_S = 1.0


@dataclass(slots=True)
class Running:
    """A request that is being answered."""

    request_id: str
    gateway: str
    attempt: int
    max_tokens: int
    read_s: float
    num_tokens: int = 0


class Feeder:
    """Answers everything that comes."""

    def __init__(self, redis: Redis, num_nodes: int, step_s: float) -> None:
        self._redis = redis
        self._step_s = step_s
        self._nodes: list[dict[str, Running]] = [{} for _ in range(num_nodes)]
        self._num_submits = 0
        self.held_s: dict[str, float] = {}

    async def read(self) -> None:
        """Take submits and cancels from the queue's inbox."""
        last_id: bytes = b"0-0"
        trim_at = 0.0
        while True:
            reply: Any = await self._redis.xread({streams.QUEUE: last_id}, MAX_READ_ENTRIES, READ_BLOCK_MS)
            now = time.perf_counter()
            for entry_id, fields in reply[0][1] if reply else []:
                last_id = entry_id
                self._take(decode_entry(fields), now)
            if now > trim_at:
                trim_at = now + TRIM_EVERY_S
                await self._redis.xtrim(streams.QUEUE, minid=last_id, approximate=True)

    def _take(self, message: object, now: float) -> None:
        if isinstance(message, Submit):
            running = Running(message.request_id, message.gateway, message.attempt, message.max_tokens, now)
            self._nodes[self._num_submits % len(self._nodes)][message.request_id] = running
            self._num_submits += 1
        elif isinstance(message, Cancel):
            for node in self._nodes:
                node.pop(message.request_id, None)

    async def step(self, number: int) -> None:
        """One node's steps, at an offset of its own."""
        node = self._nodes[number]
        at = time.perf_counter() + self._step_s * number / len(self._nodes)
        while True:
            at = max(at + self._step_s, time.perf_counter())  # a node that is late does not hurry
            await asyncio.sleep(at - time.perf_counter())
            if node:
                await self._publish(f"node-{number}", node)

    async def _publish(self, name: str, node: dict[str, Running]) -> None:
        by_gateway: dict[str, list[Chunk]] = {}
        for one in list(node.values()):
            token = TOKENS[one.num_tokens % len(TOKENS)]
            one.num_tokens += 1
            is_last = one.num_tokens == one.max_tokens
            reason = "length" if is_last else ""
            chunk = Chunk(one.request_id, one.attempt, one.num_tokens - 1, [token], reason, is_last=is_last)
            by_gateway.setdefault(one.gateway, []).append(chunk)
            if is_last:
                del node[one.request_id]
            if one.num_tokens == 1:
                self.held_s[one.request_id] = time.perf_counter() - one.read_s
        await self._send((gateway, encode(Tokens(node=name, chunks=chunks))) for gateway, chunks in by_gateway.items())

    async def _send(self, messages: Iterable[tuple[str, bytes]]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for gateway, data in messages:
                pipe.xadd(streams.tokens(gateway), {FIELD: data}, maxlen=streams.MAX_TOKEN_BACKLOG, nomkstream=True)
            await pipe.execute()


async def serve(url: str, num_nodes: int, step_s: float) -> dict[str, float]:
    """Until SIGTERM."""
    redis = connect(url)
    feeder = Feeder(redis, num_nodes, step_s)
    tasks = [asyncio.create_task(feeder.read())]
    tasks += [asyncio.create_task(feeder.step(number)) for number in range(num_nodes)]
    stop = asyncio.create_task(_stopped())
    done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in done - {stop}:
        task.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await redis.aclose()
    return feeder.held_s


async def _stopped() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def main() -> None:
    """Parse, serve, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--step-s", type=float, default=0.025)
    options = parser.parse_args()
    held_s = uvloop.run(serve(options.redis, options.nodes, options.step_s))
    json.dump(held_s, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to put away


if __name__ == "__main__":
    main()
