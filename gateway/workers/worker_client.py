"""What a parent asks one of its workers, over the worker's UNIX socket."""

from __future__ import annotations

import http
from typing import Any

import aiohttp
import msgspec

ASK_S = 3.0  # a worker answers from a thread of its own, which waits for its turn while the worker is busy
MAX_ANSWER_BYTES = 16 << 20


class WorkerClient:
    """A line to one process."""

    def __init__(self, path: str) -> None:
        self._session = aiohttp.ClientSession(
            "http://worker", connector=aiohttp.UnixConnector(path), timeout=aiohttp.ClientTimeout(total=ASK_S)
        )

    async def aclose(self) -> None:
        """Hang up."""
        await self._session.close()

    async def ask(self, path: str) -> tuple[int, str] | None:
        """Status and text; None where it does not answer: it is starting, ending or stopped."""
        try:
            async with self._session.get(path) as answer:
                body = await answer.content.read(MAX_ANSWER_BYTES)
                return answer.status, body.decode()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def text(self, path: str) -> str | None:
        """A good answer, or None."""
        answer = await self.ask(path)
        return answer[1] if answer is not None and answer[0] == http.HTTPStatus.OK else None

    async def status(self) -> dict[str, Any]:
        """What it says of itself; empty where it does not answer."""
        text = await self.text("/status")
        found: dict[str, Any] = msgspec.json.decode(text) if text else {}
        return found
