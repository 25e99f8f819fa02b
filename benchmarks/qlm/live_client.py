"""Plays a trace against a gateway as its clients would, and notes what each of them saw."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import aiohttp
from live_trace import BATCH, INTERACTIVE, LiveRequest

REQUEST_TIMEOUT_S = 900.0
PLACE = ": queue "


@dataclass
class Place:
    """What a waiting client was told, and when (seconds after the trace began)."""

    told_s: float
    num_ahead: int
    wait_s: float | None
    wait_p90_s: float | None


@dataclass
class Seen:
    """One request as its client saw it; times in seconds after the trace began."""

    request: LiveRequest
    request_id: str = ""
    sent_s: float = 0.0
    first_token_s: float | None = None
    finished_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    places: list[Place] = field(default_factory=list)
    refused: str = ""
    """Why it has no answer; ``""`` where it has one."""

    @property
    def latency_s(self) -> float:
        """From sending to the last token."""
        assert self.finished_s is not None, f"request {self.request.number} has no answer: {self.refused}"
        return self.finished_s - self.sent_s


@dataclass(frozen=True)
class Played:
    """One trace as its clients saw it; their times are seconds after ``began_s``."""

    began_s: float
    """On the system's clock, which is the cluster's too."""
    seen: list[Seen]


async def play(
    url: str, warm_up: Iterator[LiveRequest], trace: Iterator[LiveRequest], advance: Callable[[], None]
) -> tuple[Played, Played]:
    """Send each request at its time: those of the warm-up first, and the trace when its batch has been answered.

    Interactive requests keep coming for as long as there is a batch: their stream goes on from one to the other.
    ``advance`` is called after each batch answer of the trace.
    """
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as clients:
        before = await _until_answered(session, url, warm_up, clients, lambda: None)
        played = await _until_answered(session, url, trace, clients, advance)
    return before, played


async def _until_answered(
    session: aiohttp.ClientSession,
    url: str,
    requests: Iterator[LiveRequest],
    clients: asyncio.TaskGroup,
    advance: Callable[[], None],
) -> Played:
    """Send requests until all batch requests have been answered; what was sent meanwhile may still go on."""
    began_s = time.perf_counter()
    played = Played(time.time(), [])
    batch: list[asyncio.Task[None]] = []
    for request in requests:
        if request.slo == INTERACTIVE:
            timeout_s = request.arrival_s - (time.perf_counter() - began_s)
            _, unanswered = await asyncio.wait(batch, timeout=timeout_s)
            if not unanswered:
                break
        seen = Seen(request)
        played.seen.append(seen)
        client = clients.create_task(_client(session, url, seen, began_s))
        if request.slo == BATCH:
            batch.append(client)
            client.add_done_callback(lambda _: advance())
    return played


async def _client(session: aiohttp.ClientSession, url: str, seen: Seen, began_s: float) -> None:
    request = seen.request
    await asyncio.sleep(request.arrival_s - (time.perf_counter() - began_s))
    body = {
        "model": request.model,
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "slo": request.slo,
        "stream": True,
        "stream_options": {"include_usage": True, "include_queue": True},
    }
    seen.sent_s = time.perf_counter() - began_s
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        seen.request_id = response.headers["x-treadle-request-id"]
        if response.status == 200:
            async for line in response.content:
                _read(seen, line.decode().strip(), time.perf_counter() - began_s)
        else:
            seen.refused = f"{response.status}: {(await response.text())[:200]}"


def _read(seen: Seen, line: str, now_s: float) -> None:
    if line.startswith(PLACE):
        told = json.loads(line.removeprefix(PLACE))
        seen.places.append(Place(now_s, told["num_ahead"], told["wait_s"], told["wait_p90_s"]))
    elif line.startswith("data: {"):
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            seen.refused = event["error"]["message"]
        if event.get("usage"):
            seen.prompt_tokens = event["usage"]["prompt_tokens"]
            seen.output_tokens = event["usage"]["completion_tokens"]
        if any(choice["delta"].get("content") for choice in event.get("choices", [])):
            seen.first_token_s = now_s if seen.first_token_s is None else seen.first_token_s
            seen.finished_s = now_s
