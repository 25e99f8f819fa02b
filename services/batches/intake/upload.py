"""A file that a client sends: a form (multipart) read piece by piece, and written as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http import HttpProcessingError

from services.batches.refused import RefusedError
from shared.messages.batches.batches import MAX_KEEP_S, MIN_KEEP_S, FilePurpose

PIECE_BYTES = 256 << 10
MAX_FIELD_BYTES = 512  # of a form's field that is no file
MAX_PARTS = 8
MAX_FILENAME_CHARACTERS = 256
MAX_NAME_CHARACTERS = 64  # of an unknown field, as it is told to its client
PURPOSES: tuple[FilePurpose, ...] = ("batch", "user_data")  # of files that clients send

_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_FIELDS = ("purpose", _ANCHOR, _SECONDS)


class UploadedForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a form said; its file lies where it was to be written."""

    filename: str
    purpose: Literal["batch", "user_data"]
    num_bytes: int
    keep_s: int | None


async def read_form(request: web.Request, path: Path, max_bytes: int) -> UploadedForm:
    """Read a form to its end, and its file to ``path``; `RefusedError` for what is wrong with it.

    OSError where the disk takes no more.
    """
    if not request.content_type.startswith("multipart/"):
        raise RefusedError(415, "unsupported_media_type", "a file comes as a form: multipart/form-data")
    fields: dict[str, str] = {}
    file: tuple[str, int] | None = None
    try:
        async for part in _parts(await request.multipart()):
            if part.name == "file":
                if file is not None:
                    raise RefusedError(400, "invalid_value", "a form has one file", "file")
                file = (_text(part.filename or "file", MAX_FILENAME_CHARACTERS), await _write(part, path, max_bytes))
            else:
                _note(fields, _text(part.name or "", MAX_NAME_CHARACTERS), await part.read_chunk(MAX_FIELD_BYTES + 1))
    except (ValueError, AssertionError, HttpProcessingError, web.RequestPayloadError) as error:  # of broken forms
        raise RefusedError(400, "invalid_form", "the body is no valid form (multipart/form-data)") from error
    if file is None:
        raise RefusedError(400, "missing_required_parameter", "'file' is missing", "file")
    return UploadedForm(filename=file[0], num_bytes=file[1], purpose=_purpose(fields), keep_s=_keep_s(fields))


async def _parts(form: MultipartReader) -> AsyncIterator[BodyPartReader]:
    for _ in range(MAX_PARTS):
        part = await form.next()
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise ValueError("a form within a form")
        yield part
        await part.release()
    raise ValueError("too many parts")


async def _write(part: BodyPartReader, path: Path, max_bytes: int) -> int:
    """How many bytes it was. Writing waits for the disk on a thread."""
    num_bytes = 0
    with path.open("wb") as file:
        while piece := await part.read_chunk(PIECE_BYTES):
            num_bytes += len(piece)
            if num_bytes > max_bytes:
                raise RefusedError(413, "file_too_large", f"the file has more than {max_bytes} bytes", "file")
            await asyncio.to_thread(_write_piece, file, piece)
    return num_bytes


def _write_piece(file: BinaryIO, piece: bytes) -> None:
    file.write(piece)


def _note(fields: dict[str, str], name: str, value: bytes) -> None:
    if name not in _FIELDS:
        raise RefusedError(400, "unknown_parameter", f"{name!r} is not a known field", name)
    if len(value) > MAX_FIELD_BYTES:
        raise RefusedError(400, "invalid_value", f"{name!r} is too long", name)
    fields[name] = value.decode(errors="replace")


def _text(made_up: str, most: int) -> str:
    """A client's own word, as far as it is text: bytes that are no UTF-8 come as surrogates."""
    return made_up[:most].encode(errors="replace").decode()


def _purpose(fields: dict[str, str]) -> Literal["batch", "user_data"]:
    match fields.get("purpose"):
        case "batch":
            return "batch"
        case "user_data":
            return "user_data"
        case None:
            raise RefusedError(400, "missing_required_parameter", "'purpose' is missing", "purpose")
    raise RefusedError(400, "invalid_value", f"'purpose' is one of {', '.join(PURPOSES)}", "purpose")


def _keep_s(fields: dict[str, str]) -> int | None:
    if _ANCHOR not in fields and _SECONDS not in fields:
        return None
    if fields.get(_ANCHOR) != "created_at":
        raise RefusedError(400, "invalid_value", f"{_ANCHOR!r} is 'created_at'", _ANCHOR)
    text = fields.get(_SECONDS, "")
    if not (text.isascii() and text.isdigit() and len(text) < 9 and MIN_KEEP_S <= int(text) <= MAX_KEEP_S):
        raise RefusedError(400, "invalid_value", f"{_SECONDS!r} is {MIN_KEEP_S} to {MAX_KEEP_S}", _SECONDS)
    return int(text)
