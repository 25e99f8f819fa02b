"""What a body is wrapped in: gzip and deflate are undone here, within bounds; every other encoding or type is refused.

The server could undo encodings by itself, but then a body that is none of its encoding is no error of the client any
more, and what it lacks is answered as plain text.
"""

from __future__ import annotations

import zlib

from aiohttp import web

from gateway.openai.errors import errors

ENCODINGS = ("gzip", "deflate")
_STEP_BYTES = 64 << 10  # what is inflated at a time: no more than this is made beyond the bound

# `curl -d` says that its JSON is a form, and programs that say nothing of theirs send octets or text.
_TYPES = ("application/json", "application/x-www-form-urlencoded", "application/octet-stream", "text/plain")
_CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")


def check_type(request: web.Request) -> None:
    """`ApiError` 415 for a body that says that it is no JSON, or in other characters than JSON has."""
    if "Content-Type" not in request.headers:
        return
    kind = request.content_type
    if kind not in _TYPES and not (kind.startswith("application/") and kind.endswith("+json")):
        raise errors.unsupported_body("content type", kind, "application/json")
    charset = request.charset
    if charset is not None and charset.lower() not in _CHARSETS:
        raise errors.unsupported_body("charset", charset, "utf-8")


def encoding_of(request: web.Request) -> str:
    """How the body is encoded, "" where it is not; `ApiError` 415 for what cannot be undone here."""
    listed = ",".join(request.headers.getall("Content-Encoding", ()))
    names = [name for part in listed.split(",") if (name := part.strip().lower()) not in {"", "identity"}]
    if not names:
        return ""
    encoding = names[0].removeprefix("x-")
    if len(names) > 1 or encoding not in ENCODINGS:
        raise errors.unsupported_body("content encoding", ", ".join(names), " or ".join(ENCODINGS))
    return encoding


def inflated(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body as it was before it was encoded; `ApiError` 400 where it was not, 413 above ``max_bytes``.

    One member of gzip: thousands of empty ones would cost more than their bytes.
    """
    if not encoding:
        return data
    parts: list[bytes] = []
    num_bytes = 0
    inflater = zlib.decompressobj(wbits=_window(data, encoding))
    rest = data
    try:
        while not inflater.eof:
            part = inflater.decompress(rest, _STEP_BYTES)
            rest = inflater.unconsumed_tail
            num_bytes += len(part)
            if num_bytes > max_bytes:
                raise errors.body_too_large(max_bytes)
            if not part and not rest and not inflater.eof:
                raise errors.broken_encoding(encoding, "it ends too early")
            parts.append(part)
    except zlib.error as error:
        raise errors.broken_encoding(encoding, str(error)) from error
    if inflater.unused_data:
        raise errors.broken_encoding(encoding, "there is more behind its end")
    return b"".join(parts)


def _window(data: bytes, encoding: str) -> int:
    """zlib's name of the format: "deflate" comes with zlib's header, as it should, or, from some clients, without."""
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    has_header = data[:1] and data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
