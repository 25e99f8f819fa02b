"""Waiting for what comes by itself, in tests of responses in the background."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from openai.types.responses import Response

from tests.gateway.conftest import Gateway

WAIT_S = 20.0
T = TypeVar("T")


async def until(found: Callable[[], Awaitable[T | None]]) -> T:
    """What is found once there is something."""
    async with asyncio.timeout(WAIT_S):
        while (value := await found()) is None:  # noqa: ASYNC110 (Redis tells nobody)
            await asyncio.sleep(0.005)
        return value


async def in_status(gateway: Gateway, response_id: str, *statuses: str) -> Response:
    """The response, once it has one of these."""

    async def found() -> Response | None:
        response: Response = await gateway.openai.responses.retrieve(response_id)
        return response if response.status in statuses else None

    return await until(found)


async def ended(gateway: Gateway, response_id: str) -> Response:
    """The response, once it has ended."""
    return await in_status(gateway, response_id, "completed", "incomplete", "failed", "cancelled")


async def begun(gateway: Gateway, **fields: Any) -> Response:
    """A response in the background."""
    asked: dict[str, Any] = {"model": "tiny", "input": "hi", "background": True} | fields
    response: Response = await gateway.openai.responses.create(**asked)
    return response


async def events_of(gateway: Gateway, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """Its stream, to the end."""
    query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    async with gateway.http.get(f"/v1/responses/{response_id}", params=query) as answer:
        assert answer.status == 200, await answer.text()
        return events_in(await answer.text())


def events_in(text: str) -> list[dict[str, Any]]:
    """Of a body of server-sent events, those with data."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]
