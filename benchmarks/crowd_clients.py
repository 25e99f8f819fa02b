"""Many clients in one process, as cheap as they can be: a socket each, and no HTTP library.

Each sends its next request when the last one is answered, over the same connection. Started by `crowd.py`; prints what
came of the requests as one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvloop

HOST = "127.0.0.1"
SPARE_FILES = 64  # beside one a client
LEVEL_TIMEOUT_S = 900.0
RECONNECT_S = 0.5  # a client whose connection broke comes again after this
MAX_EXAMPLES = 3  # of errors, as they were told
TAIL_BYTES = 512  # of an answer, where its end and its usage stand
END = b"\r\n0\r\n\r\n"
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "from", "at")


class Account:
    """What came of all requests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.numbers: Iterator[int] = iter(range(options.requests))
        self.outcomes: Counter[str] = Counter()
        self.connects_s: list[float] = []
        self.firsts_s: list[float] = []
        self.refusals_s: list[float] = []
        self.num_without_retry_after = 0
        self.examples: list[str] = []

    def request(self, number: int) -> bytes:
        """The bytes of a request: models in turn, a prompt that no other one shares."""
        options = self.options
        words = [WORDS[(number // len(WORDS) ** place + place) % len(WORDS)] for place in range(options.prompt_tokens)]
        body = {
            "model": options.models[number % len(options.models)],
            "prompt": " ".join(words),
            "max_tokens": options.max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}:{options.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def leaves(self, number: int) -> bool:
        """Whether the client of this request goes away at its first token."""
        return bool(self.options.leave_every) and number % self.options.leave_every == self.options.leave_every - 1


class Client(asyncio.Protocol):
    """One connection, and one request after the other over it."""

    def __init__(self, account: Account, number: int, lost: Callable[[int | None], None]) -> None:
        self._account = account
        self._number: int | None = number
        self._lost = lost
        self._began_s = time.perf_counter()
        self._status = 0
        self._tail = b""
        self._left_bytes = -1
        self._has_left = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._account.connects_s.append(time.perf_counter() - self._began_s)
        self._send()

    def connection_lost(self, _: Exception | None) -> None:
        """Whoever had a request under way has no answer."""
        if self._number is not None and not self._has_left:
            self._account.outcomes["reset"] += 1
            self._number = next(self._account.numbers, None)
        self._lost(self._number)

    def data_received(self, data: bytes) -> None:
        """Follow the answer to its end."""
        if self._number is None or self._has_left:
            return
        self._tail = data if not self._tail else (self._tail + data)
        if not self._status and not self._read_head():
            return
        if self._left_bytes < 0:
            if self._tail.endswith(END):
                self._end_stream()
            else:
                self._tail = self._tail[-TAIL_BYTES:]
        elif len(self._tail) >= self._left_bytes:
            if self._status != 429 and len(self._account.examples) < MAX_EXAMPLES:
                self._account.examples.append(self._tail.decode(errors="replace"))
            self._next(str(self._status))

    def _send(self) -> None:
        assert self._number is not None
        assert self._transport is not None
        self._status, self._tail, self._left_bytes = 0, b"", -1
        self._transport.write(self._account.request(self._number))

    def _read_head(self) -> bool:
        """Whether status and headers are there; a stream's first bytes are its first token."""
        head, found, rest = self._tail.partition(b"\r\n\r\n")
        if not found:
            return False
        self._status, self._tail = int(head[9:12]), rest
        took_s = time.perf_counter() - self._began_s
        headers = head.lower()
        if b"content-length: " in headers:
            self._left_bytes = int(headers.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self._account.refusals_s.append(took_s)
            self._account.num_without_retry_after += self._status == 429 and b"retry-after: " not in headers
            return True
        self._account.firsts_s.append(took_s)
        assert self._number is not None
        if self._account.leaves(self._number):
            self._account.outcomes["left"] += 1
            self._has_left = True
            self._number = next(self._account.numbers, None)
            assert self._transport is not None
            self._transport.abort()
            return False
        return True

    def _end_stream(self) -> None:
        is_whole = (
            b"[DONE]" in self._tail and b'"completion_tokens":%d,' % self._account.options.max_tokens in self._tail
        )
        self._next("answered" if is_whole else "broken")

    def _next(self, outcome: str) -> None:
        self._account.outcomes[outcome] += 1
        self._number = next(self._account.numbers, None)
        if self._number is None:
            assert self._transport is not None
            self._transport.close()
            return
        self._began_s = time.perf_counter()
        self._send()


async def one_client(account: Account) -> None:
    """Requests until there are none, over as many connections as it takes."""
    loop = asyncio.get_running_loop()
    number = next(account.numbers, None)
    while number is not None:
        lost: asyncio.Future[int | None] = loop.create_future()
        try:
            await loop.create_connection(partial(Client, account, number, lost.set_result), HOST, account.options.port)
        except OSError:
            account.outcomes["not connected"] += 1
            number = next(account.numbers, None)
        else:
            num_lost = account.outcomes["reset"]
            number = await lost
            if account.outcomes["reset"] > num_lost:
                await asyncio.sleep(RECONNECT_S)


async def run(options: argparse.Namespace) -> dict[str, object]:
    """All clients at once."""
    account = Account(options)
    began_s = time.perf_counter()
    try:
        async with asyncio.timeout(LEVEL_TIMEOUT_S):
            await asyncio.gather(*(one_client(account) for _ in range(options.clients)))
    except TimeoutError:
        account.outcomes["unfinished"] = options.requests - sum(account.outcomes.values())
    return {
        "duration_s": round(time.perf_counter() - began_s, 1),
        "outcomes": dict(sorted(account.outcomes.items())),
        "connect_s": spread(account.connects_s),
        "ttft_s": spread(account.firsts_s),
        "refused_s": spread(account.refusals_s),
        "num_without_retry_after": account.num_without_retry_after,
        "examples": account.examples,
        "processor_s": time.process_time(),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and largest; empty where there are none."""
    if not values:
        return {}
    cuts = statistics.quantiles(values, n=100) if len(values) > 1 else values * 99
    return {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3), "max": round(max(values), 3)}


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--leave-every", type=int, default=0, help="each so many-th request is left at its first token")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < options.clients + SPARE_FILES:
        parser.error(f"{options.clients} clients need as many open files, and the limit is {hard}; see `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(uvloop.run(run(options))))


if __name__ == "__main__":
    main()
