"""The body of a request: read within bounds, decoded, validated; every fault becomes a 400 that names the field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec
from aiohttp import web
from pydantic import BaseModel, ValidationError

from gateway.http import encodings
from gateway.http.body_shape import check_steps
from gateway.http.context import CLIENT, LARGE_BODIES
from gateway.openai.errors import errors
from gateway.openai.objects.part import FieldConflictError, MissingFieldError, UnsupportedFieldError, path_of, text_of
from gateway.tenants.turnstile import TURNSTILE

# A client that sends its body slower than this holds a place for nothing: ten seconds, and more for a large one.
BODY_READ_TIMEOUT_S = 10.0
MIN_BODY_BYTES_PER_S = 64 << 10

# Whatever is in a body of this size, it holds other requests up for a few milliseconds at most. What is larger is
# looked at in steps, then decoded in a thread, and one at a time, the tenants by turns: threads share the interpreter,
# so several would only take turns with the event loop.
MAX_INLINE_BYTES = 16 << 10
_large_bodies = ThreadPoolExecutor(1, "large-bodies")

BODY_BYTES = web.RequestKey("BODY_BYTES", int)
"""How many bytes a body turned out to have, as it came or inflated, whichever are more."""

RequestModel = TypeVar("RequestModel", bound=BaseModel)


def announced_bytes(request: web.Request) -> int:
    """How many bytes a body may turn out to have, before it is read: what is not said is taken to be all it may."""
    most = request.client_max_size
    if request.content_length is None or "Content-Encoding" in request.headers:
        return most if request.body_exists else 0
    return min(request.content_length, most)


async def read_body(request: web.Request, model: type[RequestModel]) -> RequestModel:
    """The validated body; `ApiError` otherwise (aiohttp raises the 413 when there are too many bytes)."""
    encodings.check_type(request)
    encoding = encodings.encoding_of(request)
    try:
        if request.content.is_eof():  # mostly it comes with its headers, and nothing has to be waited for
            received = await request.read()
        else:
            async with asyncio.timeout(read_timeout_s(announced_bytes(request))):
                received = await request.read()
    except TimeoutError as error:
        raise errors.ApiError(408, "the body did not arrive in time", code="request_timeout") from error
    except web.RequestPayloadError as error:
        raise errors.bad_http() from error
    # from here on until it is submitted, a request takes the loop's time
    await request.app[TURNSTILE].turn(request[CLIENT].tenant)
    data = received
    if encoding:
        inflate = partial(encodings.inflated, received, encoding, request.client_max_size)
        async with request.app[LARGE_BODIES].one(request[CLIENT].tenant):
            data = await asyncio.get_running_loop().run_in_executor(_large_bodies, inflate)
    request[BODY_BYTES] = max(len(received), len(data))
    if len(data) <= MAX_INLINE_BYTES:
        return parse_body(data, model)
    async with request.app[LARGE_BODIES].one(request[CLIENT].tenant):
        for _ in check_steps(data):
            await asyncio.sleep(0)
        return await asyncio.get_running_loop().run_in_executor(_large_bodies, parse_body, data, model)


async def read_kept(request: web.Request, num_bytes: int, read: Callable[[], None]) -> None:
    """Read what belongs to a body and was kept here, where the body would be read."""
    if num_bytes <= MAX_INLINE_BYTES:
        read()
        return
    async with request.app[LARGE_BODIES].one(request[CLIENT].tenant):
        await asyncio.get_running_loop().run_in_executor(_large_bodies, read)


def read_timeout_s(num_bytes: int) -> float:
    """How long a body of this size may take to arrive, in seconds."""
    return BODY_READ_TIMEOUT_S + num_bytes / MIN_BODY_BYTES_PER_S


def parse_body(data: bytes, model: type[RequestModel]) -> RequestModel:
    """Decode and validate; `ApiError` 400 with the field in ``param``."""
    try:
        raw = msgspec.json.decode(data)
    except RecursionError as error:
        raise errors.malformed_json("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise errors.malformed_json(_no_utf8(data)) from error
    except msgspec.DecodeError as error:
        raise errors.malformed_json(str(error)) from error
    with telling_faults():
        return model.model_validate(raw)


@contextmanager
def telling_faults() -> Iterator[None]:
    """What a request says wrongly is raised as an `ApiError` 400 with the field in ``param``."""
    try:
        yield
    except UnsupportedFieldError as error:
        raise errors.unsupported(error.field, error.instead) from error
    except FieldConflictError as error:
        raise errors.invalid(error.message, error.field) from error
    except MissingFieldError as error:
        raise errors.missing(error.field) from error
    except ValidationError as error:
        raise _invalid(error) from error


def _no_utf8(data: bytes) -> str:
    """Where; msgspec counts from the begin of the text in which it is, which is unknown."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} is 0x{data[error.start]:02x}, which is no UTF-8 there ({error.reason})"
    raise AssertionError("msgspec and Python agree on UTF-8")


def _invalid(error: ValidationError) -> errors.ApiError:
    """The first fault; the value stays out of the message, since it may be a prompt."""
    problem = error.errors(include_input=False, include_url=False)[0]
    param = path_of(problem["loc"])
    text = text_of(problem)
    if problem["type"] == "extra_forbidden":
        return errors.invalid(f"{param!r} is not a known field", param, code="unknown_parameter")
    if problem["type"] == "missing":
        return errors.missing(param)
    return errors.invalid(f"{param!r}: {text}" if param else f"the body: {text}", param)
