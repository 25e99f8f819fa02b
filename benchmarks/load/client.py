"""Many clients of one OpenAI-compatible server in one process that costs little itself: raw asyncio, no HTTP library.

Either so many clients of which each asks again as soon as it is answered (``--concurrency``), or requests that come
by chance at a rate (``--rate``), over connections that are kept. Each answer is checked: status 200, and its end
(``[DONE]`` of a stream). Prints one JSON object: times in seconds from the moment a request was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import cast
from urllib.parse import urlsplit

import uvloop

CONNECTS_AT_A_TIME = 64
ANSWER_TIMEOUT_S = 120.0
NUMBER = b"########"  # stands in the prompt where each request has its number: no two are equal
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n0\r\n\r\n"  # a JSON text has no line breaks, so only the end of a chunked body looks like this
_ID = re.compile(rb'"id": ?"[a-z]+-([0-9a-f]+)"')


@dataclass
class Answers:
    """What came back."""

    ttft_s: dict[str, float] = field(default_factory=dict)
    """By the server's request id; to the first event with text, or where nothing is streamed to the whole."""
    e2e_s: list[float] = field(default_factory=list)
    num_events: int = 0
    num_bytes: int = 0
    errors: dict[str, int] = field(default_factory=dict)


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, requests: Iterator[bytes], is_stream: bool, answers: Answers) -> None:
        self._requests = requests
        self._answers = answers
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_stream = is_stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own kind

    def connection_lost(self, error: Exception | None) -> None:
        """The server has closed."""
        self._transport = None
        self._end(f"closed: {type(error).__name__}")

    @property
    def is_connected(self) -> bool:
        """It can be asked."""
        return self._transport is not None

    async def ask(self) -> None:
        """One request, until its answer is complete or has failed."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._head = b""
        self._length = -1
        self._tail = b""
        self._first_s: float | None = None
        self._num_bytes = self._num_events = 0
        self._began_s = time.perf_counter()
        self._transport.write(next(self._requests))
        try:
            await asyncio.wait_for(self._done, ANSWER_TIMEOUT_S)
        except TimeoutError:
            self._count("timeout")

    def data_received(self, data: bytes) -> None:
        """A piece of the answer."""
        if self._length < 0:
            data = self._read_head(data)
            if self._length < 0:
                return
        self._num_bytes += len(data)
        if not self._is_stream:
            self._head += data
            if self._num_bytes >= self._length:
                self._note_first(self._head)
                self._end("" if b'"finish_reason"' in self._head else "no end")
            return
        self._num_events += data.count(b"data: {")
        if self._first_s is None:
            self._head += data
            if b'"content":"' in self._head.replace(b'"content":""', b"").replace(b'": "', b'":"'):
                self._note_first(self._head)
        tail = self._tail + data[-64:]
        if tail.endswith(_END):
            self._end("" if b"data: [DONE]" in tail else "no [DONE]")
        self._tail = tail[-64:]

    def _read_head(self, data: bytes) -> bytes:
        self._head += data
        head, found, rest = self._head.partition(b"\r\n\r\n")
        if not found:
            return b""
        length = _LENGTH.search(head)
        self._length = int(length[1]) if length else 0
        self._head = b""
        if not head.startswith(b"HTTP/1.1 200"):
            self._end(head[9:12].decode())
        return rest

    def _note_first(self, text: bytes) -> None:
        self._first_s = time.perf_counter() - self._began_s
        found = _ID.search(text)
        self._answers.ttft_s[found[1].decode() if found else str(len(self._answers.ttft_s))] = self._first_s

    def _end(self, error: str) -> None:
        if self._done is None or self._done.done():
            return
        if error:
            self._count(error)
        else:
            self._answers.e2e_s.append(time.perf_counter() - self._began_s)
            self._answers.num_events += self._num_events
            self._answers.num_bytes += self._num_bytes
        self._done.set_result(None)

    def _count(self, error: str) -> None:
        self._answers.errors[error] = self._answers.errors.get(error, 0) + 1


class Load:
    """Requests to one server."""

    def __init__(self, url: str, body: dict[str, object]) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._place = (parts.hostname, parts.port)
        data = json.dumps(body).encode()
        head = (
            f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer none\r\ncontent-length: {len(data)}\r\n\r\n"
        ).encode()
        before, after = data.split(NUMBER)
        self._requests = (b"%b%b%08d%b" % (head, before, number, after) for number in count())
        self._is_stream = bool(body["stream"])
        self.answers = Answers()
        self._connecting = asyncio.Semaphore(CONNECTS_AT_A_TIME)

    async def connect(self) -> Client:
        """A connection."""
        async with self._connecting:
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(
                lambda: Client(self._requests, self._is_stream, self.answers), *self._place
            )
            return client

    async def closed(self, num_requests: int, concurrency: int) -> float:
        """Each client asks again at once; seconds from the first request to the last answer."""
        clients = await asyncio.gather(*(self.connect() for _ in range(concurrency)))
        left = num_requests

        async def go_on(client: Client) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                if not client.is_connected:
                    client = await self.connect()
                await client.ask()

        began_s = time.perf_counter()
        await asyncio.gather(*map(go_on, clients))
        return time.perf_counter() - began_s

    async def open(self, num_requests: int, rate: float, seed: int) -> float:
        """Requests come by chance, whatever becomes of those before."""
        rng = random.Random(seed)
        idle: list[Client] = []
        began_s = at = time.perf_counter()

        async def one() -> None:
            client = idle.pop() if idle else await self.connect()
            if not client.is_connected:
                client = await self.connect()
            await client.ask()
            idle.append(client)

        tasks = []
        for _ in range(num_requests):
            at += rng.expovariate(rate)
            await asyncio.sleep(max(at - time.perf_counter(), 0.0))
            tasks.append(asyncio.create_task(one()))
        await asyncio.gather(*tasks)
        return time.perf_counter() - began_s


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Make the load."""
    body = {
        "model": options.model,
        "messages": [{"role": "user", "content": options.prompt}],
        "max_tokens": options.max_tokens,
        "stream": options.stream,
    }
    load = Load(f"{options.url}/v1/chat/completions", body)
    if options.rate:
        duration_s = await load.open(options.requests, options.rate, options.seed)
    else:
        duration_s = await load.closed(options.requests, options.concurrency)
    answers = load.answers
    return {
        "duration_s": duration_s,
        "answered": len(answers.e2e_s),
        "events": answers.num_events,
        "bytes": answers.num_bytes,
        "errors": answers.errors,
        "ttft_s": answers.ttft_s,
        "e2e_s": answers.e2e_s,
        "client_cpu_s": time.process_time(),
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--prompt", default=f"Tell me about loom number {NUMBER.decode()} in a few words.")
    parser.add_argument("--seed", type=int, default=0)
    json.dump(uvloop.run(run(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
