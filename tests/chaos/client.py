"""One client's request, and what it saw of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.chaos.history import Ask, Heard, Request
from tests.chaos.members import API_KEY

PATIENCE_S = 170.0
"""A client that has heard no end for so long never will: more than a deadline, 15 s and the longest outages."""
_TENTH_S = 0.1


class LeftError(Exception):
    """The client has closed its connection, as it meant to."""


def body_of(ask: Ask) -> dict[str, Any]:
    """What is sent."""
    body: dict[str, Any] = {
        "model": ask.model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "ignore_eos": True,
        "stream": ask.streams,
    }
    if ask.wants_tokens:
        body["logprobs"] = 0
    if ask.streams:
        body["stream_options"] = {"include_usage": True}
    return body


async def perform(
    session: aiohttp.ClientSession, url: str, request: Request, now: Callable[[], float], patience_s: float = PATIENCE_S
) -> None:
    """Send a request and fill in what comes back; whatever happens, it has an end afterwards."""
    try:
        async with asyncio.timeout(patience_s):
            await _perform(session, url, request, now)
    except TimeoutError:
        request.end = "silence"
    except LeftError:
        request.end = "cancelled"
    except aiohttp.ClientConnectorError as error:
        request.end, request.why = "unreached", str(error)
    except (aiohttp.ClientError, OSError) as error:
        request.end, request.why = "broken", f"{type(error).__name__}: {error}"
    request.ended_s = now()


async def _perform(session: aiohttp.ClientSession, url: str, request: Request, now: Callable[[], float]) -> None:
    ask = request.ask
    headers = {"Authorization": f"Bearer {API_KEY}"}
    limit_s = None if ask.streams or ask.cancel_after is None else (1 + ask.cancel_after) * _TENTH_S
    try:
        async with (
            asyncio.timeout(limit_s),
            session.post(f"{url}/v1/completions", json=body_of(ask), headers=headers) as answer,
        ):
            request.status = answer.status
            request.request_id = answer.headers.get("x-treadle-request-id", "")
            if answer.status != 200:
                request.end, request.why = "refused", (await answer.text())[:300]
            elif ask.streams:
                await _read_stream(answer, request, now)
            else:
                request.heard.append(_heard(await answer.json(), now()))
                request.end = "whole"
    except TimeoutError:
        if limit_s is None:
            raise
        raise LeftError from None


async def _read_stream(answer: aiohttp.ClientResponse, request: Request, now: Callable[[], float]) -> None:
    """All events up to the end of the connection, also what comes behind an end."""
    async for line in answer.content:
        if not line.startswith(b"data: "):
            continue
        data = line[len(b"data: ") :].strip()
        request.heard.append(Heard(now(), is_done=True) if data == b"[DONE]" else _heard(json.loads(data), now()))
        if request.ask.cancel_after is not None and len(request.heard) > request.ask.cancel_after:
            answer.close()
            raise LeftError
    last = request.heard[-1] if request.heard else Heard(now())
    if any(heard.error for heard in request.heard):
        request.end = "error"
        request.why = next(heard.error for heard in request.heard if heard.error)
    else:
        request.end = "whole" if last.is_done else "broken"


def _heard(event: dict[str, Any], at_s: float) -> Heard:
    if "error" in event:
        return Heard(at_s, error=json.dumps(event["error"])[:300])
    choice = event["choices"][0] if event["choices"] else {}
    usage = event.get("usage") or {}
    return Heard(
        at_s,
        text=choice.get("text", ""),
        tokens=(choice.get("logprobs") or {}).get("tokens", []),
        finish_reason=choice.get("finish_reason"),
        num_tokens=usage.get("completion_tokens"),
    )
