"""The body of a request: read within bounds, decoded, validated; every fault becomes a 400 that names the field."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from pydantic import BaseModel, ValidationError

from gateway import errors
from gateway.openai_part import FieldConflictError, UnsupportedFieldError

BODY_READ_TIMEOUT_S = 60.0  # a client that sends its body slower than this holds a place for nothing

RequestModel = TypeVar("RequestModel", bound=BaseModel)


def announced_bytes(request: web.Request) -> int:
    """How many bytes a body may turn out to have, before it is read: what is not said is taken to be all it may."""
    most = request.client_max_size
    if request.content_length is None or "Content-Encoding" in request.headers:
        return most if request.body_exists else 0
    return min(request.content_length, most)


async def read_body(request: web.Request, model: type[RequestModel]) -> RequestModel:
    """The validated body; `ApiError` otherwise (aiohttp raises the 413 when there are too many bytes)."""
    try:
        if request.content.is_eof():  # mostly it comes with its headers, and nothing has to be waited for
            data = await request.read()
        else:
            async with asyncio.timeout(BODY_READ_TIMEOUT_S):
                data = await request.read()
    except TimeoutError as error:
        raise errors.ApiError(408, "the body did not arrive in time", code="request_timeout") from error
    return parse_body(data, model)


def parse_body(data: bytes, model: type[RequestModel]) -> RequestModel:
    """Decode and validate; `ApiError` 400 with the field in ``param``."""
    try:
        raw = msgspec.json.decode(data)
    except RecursionError as error:
        raise errors.malformed_json("it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.malformed_json(str(error)) from error
    try:
        return model.model_validate(raw)
    except UnsupportedFieldError as error:
        raise errors.unsupported(error.field) from error
    except FieldConflictError as error:
        raise errors.invalid(error.message, error.field) from error
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> errors.ApiError:
    """The first fault; the value stays out of the message, since it may be a prompt."""
    problem = error.errors(include_input=False, include_url=False)[0]
    param = _path(problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return errors.invalid(f"{param!r} is not a known field", param, code="unknown_parameter")
    if problem["type"] == "missing":
        return errors.invalid(f"{param!r} is missing", param, code="missing_required_parameter")
    return errors.invalid(f"{param!r}: {text}" if param else text, param)


def _path(loc: tuple[Any, ...]) -> str | None:
    """``("messages", 0, "role")`` as ``messages[0].role``, the way OpenAI writes it."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or None
