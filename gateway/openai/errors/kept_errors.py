"""What is refused about answers and conversations that are kept, in the shape of `gateway.openai.errors.errors`."""

from __future__ import annotations

from gateway.openai.errors.errors import ApiError, dropped, invalid

BACKGROUND_RETRY_S = 30.0  # those in the background have time, and so have requests for further ones


def nothing_kept(param: str) -> ApiError:
    """The configuration keeps nothing."""
    message = f"{param!r} needs answers that are kept: the configuration has no gateway.keep_responses_s"
    return invalid(message, param, code="unsupported_parameter")


def no_conversations() -> ApiError:
    """There are none without that."""
    message = "no conversation is kept here: the configuration has no gateway.keep_responses_s"
    return ApiError(404, message, code="conversation_not_found", param="conversation_id")


def conversation_not_found(param: str = "conversation_id") -> ApiError:
    """Of this tenant."""
    message = "no such conversation is kept, or not any more"
    return ApiError(404, message, code="conversation_not_found", param=param)


def item_not_found() -> ApiError:
    """Of a conversation."""
    return ApiError(404, "the conversation has no such item", code="item_not_found", param="item_id")


def conversation_locked() -> ApiError:
    """As OpenAI: a response is under way in it."""
    message = "another response or call is at work on this conversation: wait for its end, then ask again"
    return invalid(message, "conversation", code="conversation_locked")


def conversation_too_long(max_bytes: int) -> ApiError:
    """With the items that were to come."""
    return invalid(f"the conversation would have more than {max_bytes} bytes", "items", code="conversation_too_long")


def not_ended(param: str) -> ApiError:
    """A response in the background; nothing can go on from it yet."""
    return invalid("the response has not ended yet: wait for its end", param, code="response_not_ended")


def not_in_background() -> ApiError:
    """The response was answered to the request that asked for it."""
    message = "only a response that was made with background: true can be cancelled, or read as a stream again"
    return invalid(message, "response_id", code="response_not_in_background")


def too_much_for_background(max_bytes: int) -> ApiError:
    """A request that would be kept for the time until its answer."""
    message = f"a request in the background may have {max_bytes} bytes with the conversation before it"
    return invalid(message, "input", code="request_too_large")


def too_many_in_background(most: int, whose: str) -> ApiError:
    """That have not ended; ``whose``: the tenant's, or the cluster's."""
    message = f"{most} responses {whose} are in the background, which is the limit"
    return dropped(429, message, "saturated", BACKGROUND_RETRY_S)


def response_too_long(max_bytes: int) -> ApiError:
    """What has come of it, with its conversation, is more than is kept of one."""
    message = f"the response has become longer than what is kept of one ({max_bytes} bytes): ask for fewer tokens"
    return ApiError(500, message, code="response_too_long")


def too_many_watchers() -> ApiError:
    """Streams of responses in the background."""
    message = "too many streams of responses in the background are read at a time: close some, or ask for the response"
    return dropped(429, message, "saturated", BACKGROUND_RETRY_S)
