"""The least that a gateway on these libraries can do: what is above it is Treadle's own.

aiohttp's server with one handler and no middleware, redis-py's XREAD, one decoder of messages, one write to the socket
for each token. Prompts are not tokenised, tokens are looked up in a list of words, nobody is authenticated, nothing
is limited, measured, logged or checked, and nothing is done when a party leaves. The feeder (`feeder.py`) answers it as
it answers a gateway. Submits and ends go to Redis in batches, as a gateway's do: a command each costs more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import msgspec
import uvloop
from aiohttp import web
from redis.asyncio import Redis

from gateway.inflight.bus.batched_scripts import BatchedScripts
from shared.bus import scripts, streams
from shared.bus.bus import connect
from shared.bus.system_writes import SystemWriter, delete
from shared.messages.codec import decode_entry, encode
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import GatewayBeat, Submit, Tokens
from shared.messages.requests.slo import Slo

NAME = "floor"
WORDS = (" the", " of", " and", " to", " in")  # whichever token it is
PROMPT = list(range(40))  # as many tokens as the clients' prompts have
SLO = Slo(name="interactive", ttft_s=5.0, tpot_s=0.2)
READ_BLOCK_MS = 1_000
MAX_READ_ENTRIES = 64
TRIM_EVERY_READS = 256
MARK = "\0"  # where the text of an event stands
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


@dataclass(slots=True)
class Answer:
    """One that is under way."""

    done: asyncio.Future[None]
    before: bytes
    after: bytes
    transport: asyncio.Transport | None
    """None for an answer that is not streamed."""
    words: list[str] = field(default_factory=list)


class Floor:
    """Answers chat completions."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._scripts = BatchedScripts(redis)
        self._submit = self._scripts.register_script(scripts.SUBMIT)
        self._writer = SystemWriter(self._scripts)
        self._answers: dict[str, Answer] = {}

    async def read(self) -> None:
        """Take tokens, and write them."""
        stream, last_id = streams.tokens(NAME), b"0-0"
        for number in count():
            reply: Any = await self._redis.xread({stream: last_id}, MAX_READ_ENTRIES, READ_BLOCK_MS)
            for entry_id, fields in reply[0][1] if reply else []:
                last_id = entry_id
                message = decode_entry(fields)
                assert isinstance(message, Tokens | GatewayBeat)
                if isinstance(message, Tokens):
                    self._take(message)
            if number % TRIM_EVERY_READS == 0:
                await self._redis.xtrim(stream, minid=last_id, approximate=True)

    def _take(self, message: Tokens) -> None:
        for chunk in message.chunks:
            answer = self._answers[chunk.request_id]
            word = WORDS[chunk.token_ids[0] % len(WORDS)]
            if answer.transport is None:
                answer.words.append(word)
            else:
                data = b"data: %b%b%b\n\n" % (answer.before, word.encode(), answer.after)
                answer.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            if chunk.is_last:
                answer.done.set_result(None)

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """One request."""
        body = msgspec.json.decode(await http.read())
        request_id = os.urandom(16).hex()
        answer = _answer(request_id, body, is_stream=body["stream"])
        response = web.StreamResponse(headers=HEADERS)
        if body["stream"]:
            response.enable_chunked_encoding()
            await response.prepare(http)
            answer.transport = cast("asyncio.Transport", http.transport)  # uvloop's own kind
        self._answers[request_id] = answer
        payload = Payload(request_id, 0, NAME, body["model"], PROMPT, Sampling(max_tokens=body["max_tokens"]))
        submit = Submit(
            request_id=request_id,
            gateway=NAME,
            model=body["model"],
            slo=SLO,
            prompt_tokens=len(PROMPT),
            max_tokens=body["max_tokens"],
        )
        key = streams.payload(request_id)
        await self._submit(keys=[key, streams.QUEUE], args=[encode(payload), streams.PAYLOAD_TTL_S, encode(submit)])
        await answer.done
        del self._answers[request_id]
        await self._writer.write(delete(key))
        if not body["stream"]:
            text = msgspec.json.encode("".join(answer.words))
            return web.Response(body=answer.before + text + answer.after, content_type="application/json")
        end = answer.before.replace(b'"finish_reason":null', b'"finish_reason":"length"') + answer.after
        await response.write_eof(b"data: %b\n\ndata: [DONE]\n\n" % end)
        return response


def _answer(request_id: str, body: dict[str, Any], *, is_stream: bool) -> Answer:
    """What stands around its text."""
    content = {"content": MARK}
    choice = {"index": 0, "finish_reason": None if is_stream else "length"}
    event = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk" if is_stream else "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice | ({"delta": content} if is_stream else {"message": {"role": "assistant", **content}})],
    }
    before, mark, after = msgspec.json.encode(event).partition(msgspec.json.encode(MARK))
    assert mark
    quote = b'"' if is_stream else b""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return Answer(done, before + quote, quote + after, None)


async def serve(port: int, url: str) -> None:
    """Until the process is ended."""
    redis = connect(url)
    await redis.xadd(streams.tokens(NAME), {"m": encode(GatewayBeat(gateway=NAME))})
    floor = Floor(redis)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", floor.handle)
    app.router.add_get("/readyz", _ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4_096).start()
    await floor.read()


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Parse, serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--redis", required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.redis))


if __name__ == "__main__":
    main()
