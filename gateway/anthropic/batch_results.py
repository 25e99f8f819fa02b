"""Results of a message batch: lines of the batch service's files, told as Anthropic tells them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated

from msgspec import Meta, Raw, Struct, json

from gateway.http.anthropic_errors import messages_error
from gateway.openai.errors.errors import ApiError
from shared.messages.batches.batch_lines import CANCELLED, EXPIRED, AnswerBody, AnswerLine, NoAnswer

_UNAUTHORISED = 401  # what a request without an answer would have got, where not its batch's end is why


class SucceededResult(Struct, frozen=True, tag_field="type", tag="succeeded"):
    """It has its answer."""

    message: Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/MessageAnswer"})]


class ErroredResult(Struct, frozen=True, tag_field="type", tag="errored"):
    """It has an error."""

    error: Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/MessagesError"})]


class CanceledResult(Struct, frozen=True, tag_field="type", tag="canceled"):
    """It had no answer when its batch was cancelled."""


class ExpiredResult(Struct, frozen=True, tag_field="type", tag="expired"):
    """It had no answer when the window of its batch was over."""


class MessageBatchResult(Struct, frozen=True):
    """A line of the results."""

    custom_id: str
    result: SucceededResult | ErroredResult | CanceledResult | ExpiredResult


class _Detail(Struct, frozen=True):
    message: str = ""
    code: str | None = None


class _ErrorBody(Struct, frozen=True):
    """Of either API: only Anthropic's has a type beside its error."""

    type: str = ""
    error: _Detail = _Detail()


_lines = json.Decoder(AnswerLine)
_errors = json.Decoder(_ErrorBody)


def result_line(line: bytes) -> bytes:
    """A line of an output or error file as Anthropic's; `msgspec.MsgspecError` for another one."""
    found = _lines.decode(line)
    return json.encode(MessageBatchResult(found.custom_id, _result(found))) + b"\n"


async def result_pieces(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A whole file's lines as Anthropic's, from its bytes as they come.

    A line's begin waits here for its end; the service bounds how long a line is.
    """
    begin: list[bytes] = []
    async for piece in pieces:
        whole, newline, rest = piece.rpartition(b"\n")
        if newline:
            lines = b"".join([*begin, whole]).split(b"\n")
            begin = []
            yield b"".join([result_line(line) for line in lines])
        begin.append(rest)
    if left := b"".join(begin):
        yield result_line(left)


def _result(line: AnswerLine) -> SucceededResult | ErroredResult | CanceledResult | ExpiredResult:
    if line.response is not None:
        is_answer = 200 <= line.response.status_code < 300
        return SucceededResult(line.response.body) if is_answer else ErroredResult(_error(line.response))
    why = line.error or NoAnswer(code="", message="")
    if why.code == CANCELLED:
        return CanceledResult()
    if why.code == EXPIRED:
        return ExpiredResult()
    return ErroredResult(_told(ApiError(_UNAUTHORISED, why.message, code=why.code), line.id))


def _error(answer: AnswerBody) -> Raw:
    """As the gateway wrote it; what the batch service wrote in its place is in OpenAI's shape."""
    found = _errors.decode(answer.body)
    if found.type == "error":
        return answer.body
    error = ApiError(answer.status_code, found.error.message, code=found.error.code or "")
    return _told(error, answer.request_id)


def _told(error: ApiError, request_id: str) -> Raw:
    return Raw(json.encode(messages_error(error, request_id)))
