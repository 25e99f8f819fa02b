"""Requests that come with their batch, as Anthropic's clients send them: each checked, and written as a line."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import StreamReader, web

from services.batches.intake.lines import MAX_QUOTED_CHARACTERS, written_line
from services.batches.intake.request_cutter import RequestCutter, too_long
from services.batches.refused import RefusedError
from shared.messages.batches.batches import MESSAGES_ENDPOINT

PIECE_BYTES = 256 << 10
MAX_QUOTED_PROBLEM = 512  # characters of what is wrong with a request

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # as Anthropic has it


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    custom_id: str
    params: dict[str, Any]


class _Written(msgspec.Struct, frozen=True):
    params: msgspec.Raw


_requests = msgspec.json.Decoder(_Request)
_written = msgspec.json.Decoder(_Written)


class InlineRequests:
    """Those of one batch. `RefusedError` for the first that cannot be."""

    def __init__(self, max_requests: int, max_line_bytes: int) -> None:
        self._cutter = RequestCutter(max_line_bytes)
        self._max_requests = max_requests
        self._max_line_bytes = max_line_bytes
        self._numbers: dict[str, int] = {}  # by custom_id

    def __len__(self) -> int:
        return len(self._numbers)

    def lines_of(self, piece: bytes) -> bytes:
        """Lines of the requests that end in the next piece of the body."""
        return b"".join([self._line(request) for request in self._cutter.feed(piece)])

    def close(self) -> None:
        """The body has ended."""
        self._cutter.close()
        if not self._numbers:
            raise RefusedError(400, "invalid_value", "'requests' has at least one request", "requests")

    def _line(self, request: bytes) -> bytes:
        number = len(self)
        name = f"requests[{number}]"
        if number == self._max_requests:
            raise RefusedError(
                400, "invalid_value", f"'requests' has at most {self._max_requests} requests", "requests"
            )
        found = _decoded(request, name)
        if not _NAME.fullmatch(found.custom_id):
            text = f"'{name}.custom_id' has 1 to 64 letters, digits, '_' and '-'"
            raise RefusedError(400, "invalid_value", text, f"{name}.custom_id")
        first = self._numbers.setdefault(found.custom_id, number)
        if first != number:
            text = f"requests[{first}] has the custom_id {found.custom_id[:MAX_QUOTED_CHARACTERS]!r} already"
            raise RefusedError(400, "invalid_value", text, f"{name}.custom_id")
        if found.params.get("stream"):
            text = f"'{name}.params.stream': answers of a batch cannot be streamed"
            raise RefusedError(400, "invalid_value", text, f"{name}.params.stream")
        params = msgspec.json.format(bytes(_written.decode(request).params), indent=-1)
        line = written_line(found.custom_id, MESSAGES_ENDPOINT, msgspec.Raw(params))
        if len(line) > self._max_line_bytes:
            raise too_long(number, self._max_line_bytes)
        return line


async def read_requests(body: StreamReader, path: Path, requests: InlineRequests, max_bytes: int) -> int:
    """Read a body to its end, and its requests as lines to ``path``; how many bytes these are.

    `RefusedError` for what is wrong with them, OSError where the disk takes no more.
    """
    num_bytes = 0
    try:
        with path.open("wb") as file:
            async for piece in body.iter_chunked(PIECE_BYTES):
                lines = await asyncio.to_thread(requests.lines_of, piece)
                num_bytes += len(lines)
                if num_bytes > max_bytes:
                    raise RefusedError(
                        413, "file_too_large", f"the requests take more than {max_bytes} bytes", "requests"
                    )
                if lines:
                    await asyncio.to_thread(file.write, lines)
            requests.close()
    except web.RequestPayloadError as error:
        raise RefusedError(400, "invalid_json", "the body ends too early") from error
    return num_bytes


def _decoded(request: bytes, name: str) -> _Request:
    try:
        return _requests.decode(request)
    except msgspec.ValidationError as error:
        raise RefusedError(400, "invalid_value", f"'{name}': {error}"[:MAX_QUOTED_PROBLEM], name) from error
    except RecursionError as error:
        raise RefusedError(400, "invalid_json", f"'{name}' is nested too deeply", name) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            400, "invalid_json", f"'{name}' is no valid JSON: {error}"[:MAX_QUOTED_PROBLEM], name
        ) from error
