"""One streamed completion, timed and checked as a suspicious client would."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

DONE = "[DONE]"


class StreamError(Exception):
    """A completion that failed. ``kind`` is what it is counted under: a status, or a word."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class CompletionTimes:
    """Times of one completion, in seconds from the moment the request was sent."""

    ttft_s: float
    last_token_s: float
    e2e_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def tpot_s(self) -> float | None:
        """Mean time of an output token after the first; None when there was one only."""
        steps = self.output_tokens - 1
        return (self.last_token_s - self.ttft_s) / steps if steps > 0 else None


async def stream_completion(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> CompletionTimes:
    """Send ``body`` with streaming and follow the stream to its end; `StreamError` when anything is amiss."""
    began = time.perf_counter()
    request = {**body, "stream": True, "stream_options": {"include_usage": True}}
    check = _StreamCheck(began, int(body["max_tokens"]))
    try:
        async with session.post(url, json=request) as response:
            if response.status != 200:
                raise StreamError(str(response.status), (await response.text())[:300])
            async for event in _events(response):
                check.event(event)
    except TimeoutError as error:
        raise StreamError("timeout", "no end within the time allowed") from error
    except aiohttp.ClientError as error:
        raise StreamError("connection", f"{type(error).__name__}: {error}") from error
    except ValueError as error:  # bytes that are no UTF-8, or a line without end
        raise StreamError("invalid-stream", str(error)) from error
    return check.end()


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The data of each server-sent event. Comments tell a waiting client its place in the queue; they are no data."""
    async for line in response.content:
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:"):
            yield text.removeprefix("data:").strip()


class _StreamCheck:
    """Follows one stream.

    A client cannot count tokens exactly: a token may end inside of a character and show no text, and a server may put
    several into one event. What must hold: no more events with text than tokens, no more tokens than were asked for,
    exactly as many when the server says that the length ended it.
    """

    def __init__(self, began: float, max_tokens: int) -> None:
        self._began = began
        self._max_tokens = max_tokens
        self._first_s: float | None = None
        self._last_s = 0.0
        self._num_texts = 0
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._done = False

    def event(self, data: str) -> None:
        now_s = time.perf_counter() - self._began
        _require(not self._done, f"data after {DONE}")
        if data == DONE:
            self._done = True
            return
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise StreamError("invalid-stream", f"not JSON: {data[:100]}") from error
        _require(isinstance(chunk, dict), f"not a JSON object: {data[:100]}")
        if "error" in chunk:
            raise StreamError("stream-error", str(chunk["error"])[:300])
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", ()):
            _require(self._finish_reason is None, "a choice after its finish_reason")
            if choice.get("text"):
                self._num_texts += 1
            self._finish_reason = choice.get("finish_reason")
            self._first_s = now_s if self._first_s is None else self._first_s
            self._last_s = now_s

    def end(self) -> CompletionTimes:
        _require(self._done, f"it ended without {DONE}")
        _require(self._finish_reason is not None, "no finish_reason")
        _require(self._usage is not None, "no usage, though it was asked for")
        assert self._usage is not None
        tokens, prompt_tokens = self._usage.get("completion_tokens"), self._usage.get("prompt_tokens")
        if not isinstance(tokens, int) or not isinstance(prompt_tokens, int):
            raise StreamError("invalid-stream", f"usage without token counts: {self._usage}")
        _require(self._num_texts <= tokens, f"{self._num_texts} events with text, but usage says {tokens} tokens")
        _require(tokens <= self._max_tokens, f"{tokens} tokens, but max_tokens was {self._max_tokens}")
        if self._finish_reason == "length":
            _require(tokens == self._max_tokens, f"ended by length after {tokens} of {self._max_tokens} tokens")
        return CompletionTimes(
            ttft_s=self._first_s or 0.0,
            last_token_s=self._last_s,
            e2e_s=time.perf_counter() - self._began,
            prompt_tokens=prompt_tokens,
            output_tokens=tokens,
        )


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise StreamError("invalid-stream", text)
