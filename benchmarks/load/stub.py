"""The smallest server that speaks OpenAI's API well enough for a proxy in front of it: a word every ``step_s``.

Raw asyncio, no HTTP library: every connection's bytes are looked through for the end of a request, and all streams
share one clock, so that little of what is measured is the stub's own. Chat completions only, streamed and not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORDS = (" the", " of", " and", " to", " in", " is", " was", " for", " on", " that")
DONE = b"data: [DONE]\n\n"


def _event(choice: dict[str, object]) -> bytes:
    chunk = {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "finish_reason": None, **choice}],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENTS = [_framed(_event({"delta": {"content": word}})) for word in WORDS]
OPENING = _framed(_event({"delta": {"role": "assistant", "content": ""}}))
ENDING = _framed(_event({"delta": {}, "finish_reason": "length"}) + DONE) + b"0\r\n\r\n"


def _joined(chunks: bytes) -> bytes:
    """A chunked body as one piece."""
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body, chunks = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def _whole(num_tokens: int, num_prompt: int) -> bytes:
    text = "".join(WORDS[number % len(WORDS)] for number in range(num_tokens))
    answer = {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt + num_tokens,
        },
    }
    body = json.dumps(answer, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class Connection(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    def __init__(self, open_streams: set[Connection]) -> None:
        self._open = open_streams
        self._data = b""
        self._left = 0
        self._num_tokens = 0
        self._is_stream = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own kind

    def connection_lost(self, _: Exception | None) -> None:
        """It has left."""
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        """A request, when all of it is there."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if length is None and not body.endswith(b"\r\n0\r\n\r\n"):
            return
        if length is not None and len(body) < int(length[1]):
            return
        self._data = b""
        asked = json.loads(body if length is not None else _joined(body))
        self._left = self._num_tokens = asked.get("max_tokens") or asked.get("max_completion_tokens") or 16
        self._is_stream = bool(asked.get("stream"))
        if self._is_stream:
            self._transport.write(HEAD + OPENING)
        self._open.add(self)

    def step(self) -> None:
        """One more token."""
        self._left -= 1
        if self._is_stream:
            event = EVENTS[self._left % len(EVENTS)]
            self._transport.write(event if self._left else event + ENDING)
        elif not self._left:
            self._transport.write(_whole(self._num_tokens, 16))
        if not self._left:
            self._open.discard(self)


async def serve(port: int, num_nodes: int, step_s: float) -> None:
    """Until the process is ended. Streams are shared among nodes whose steps are at offsets, as a cluster's are."""
    nodes: list[set[Connection]] = [set() for _ in range(num_nodes)]
    num_made = 0

    def make() -> Connection:
        nonlocal num_made
        num_made += 1
        return Connection(nodes[num_made % num_nodes])

    loop = asyncio.get_running_loop()
    await loop.create_server(make, "127.0.0.1", port, backlog=4_096)
    at, number = time.perf_counter(), 0
    while True:
        at, number = at + step_s / num_nodes, number + 1
        await asyncio.sleep(max(at - time.perf_counter(), 0.0))
        for stream in list(nodes[number % num_nodes]):
            stream.step()


def main() -> None:
    """Parse, serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--step-s", type=float, default=0.025)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.nodes, options.step_s))


if __name__ == "__main__":
    main()
