"""Events of a response in the background that no token has come for, or none any more."""

from __future__ import annotations

from msgspec import structs

from gateway.openai.errors.errors import ApiError
from gateway.responses.answer import ResponseAnswer, ResponseFailure
from gateway.responses.rendering.events import (
    ResponseCancelled,
    ResponseCreated,
    ResponseErrorEvent,
    ResponseFailed,
    ResponseQueued,
    as_sent,
)


def queued_events(answer: ResponseAnswer) -> list[bytes]:
    """Its first two; ``answer`` is queued."""
    return as_sent(
        ResponseCreated(sequence_number=0, response=answer), ResponseQueued(sequence_number=1, response=answer)
    )


def cancelled_event(answer: ResponseAnswer, number: int) -> list[bytes]:
    """Its last; ``answer`` is cancelled."""
    return as_sent(ResponseCancelled(sequence_number=number, response=answer))


def failed_answer(answer: ResponseAnswer, error: ApiError) -> ResponseAnswer:
    """The same, as it is when it has failed."""
    return structs.replace(answer, status="failed", error=ResponseFailure(code=error.code, message=error.message))


def failed_events(answer: ResponseAnswer, error: ApiError, number: int) -> list[bytes]:
    """Its last two; ``answer`` has failed."""
    told = ResponseErrorEvent(sequence_number=number, code=error.code, message=error.message, param=error.param)
    return as_sent(told, ResponseFailed(sequence_number=number + 1, response=answer))
