"""Sends requests of batches to gateways, as their clients would, and says what came back."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec

from shared.messages.batches.batches import KEY_HEADER, PROMISE_HEADER, TOKEN_HEADER, BatchRecord

CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 << 20  # of one answer: a hundred times what the longest have
MAX_QUOTED_BYTES = 1024  # of an answer that no gateway wrote
GRACE_S = 5.0  # behind the end of the window: the batch calls its requests back at that
NO_GATEWAY = 503  # what it is taken for when no gateway answers

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back; ``body`` is JSON on one line."""

    status: int
    request_id: str = ""
    body: bytes = b""
    retry_after_s: float | None = None


class BatchSender:
    """Of one service; its connections are kept."""

    def __init__(self, gateway_url: str, token: str, max_inflight: int) -> None:
        self._url = gateway_url
        self._token = token
        connector = aiohttp.TCPConnector(limit=max_inflight)
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def close(self) -> None:
        """Give its connections up."""
        await self._session.close()

    async def send(self, batch: BatchRecord, body: bytes, deadline_s: float, left_s: float) -> Reply:
        """One request, with ``deadline_s`` as its promise; ``left_s`` until its batch's window is over."""
        headers = {
            "content-type": "application/json",
            TOKEN_HEADER: self._token,
            KEY_HEADER: batch.asked.key_id,
            PROMISE_HEADER: str(deadline_s),
        }
        try:
            async with (
                asyncio.timeout(max(left_s, 0.0) + GRACE_S),
                self._session.post(self._url + batch.asked.endpoint, data=body, headers=headers) as response,
            ):
                request_id = response.headers.get("x-treadle-request-id", "")
                data = await _read(response)
                if response.status < 300 and data is not None and not (request_id and _is_object(data)):
                    return Reply(status=NO_GATEWAY)  # what answered is no gateway
                return Reply(
                    status=response.status if data is not None else 500,
                    request_id=request_id,
                    body=_error("answer_too_large", "the answer is too large for a batch")
                    if data is None
                    else _as_json(data),
                    retry_after_s=_seconds(response.headers.get("retry-after")),
                )
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Reply(status=NO_GATEWAY)


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """None for more than is taken."""
    pieces, num_bytes = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > MAX_ANSWER_BYTES:
            response.close()
            return None
    return b"".join(pieces)


def _is_object(data: bytes) -> bool:
    """What stands in it is not looked at: a model may write numbers that no decoder here has a place for."""
    try:
        _objects.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _as_json(data: bytes) -> bytes:
    """On one line; what is no JSON was not written by a gateway, and is quoted as an error."""
    try:
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _error("no_json", data[:MAX_QUOTED_BYTES].decode(errors="replace"))


def _error(code: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": "server_error", "param": None, "code": code}})


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else None
