"""Errors in Anthropic's shape. Statuses and headers are those that all clients get."""

from __future__ import annotations

from msgspec import Struct

from gateway.openai.errors.errors import ApiError

PATH = "/v1/messages"

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class MessagesErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong: for people (message), for clients of Anthropic's (type), for programs (param, code)."""

    type: str
    message: str
    param: str | None
    code: str


class MessagesError(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """Answer to everything that failed; in a stream, its last event."""

    error: MessagesErrorDetail
    request_id: str


def is_messages(path: str) -> bool:
    """Whether clients of Anthropic's ask there."""
    return path == PATH or path.startswith(f"{PATH}/")


def messages_error(error: ApiError, request_id: str) -> MessagesError:
    """The error as they expect it; ``param`` and ``code`` beside."""
    default = "invalid_request_error" if error.status < 500 else "api_error"
    detail = MessagesErrorDetail(
        type=TYPES.get(error.status, default), message=error.message, param=error.param, code=error.code
    )
    return MessagesError(error=detail, request_id=request_id)
