"""What a client can be told, in OpenAI's shape: every refusal is made below, those of images in `picture_errors`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from gateway.openai.answers.delta import Crashed, Rejection
from shared.config.engines.engine import TASK_ANSWERS, ModelTask
from shared.messages.requests.slo import Slo

DROPPED_REASON_HEADER = "x-treadle-dropped-reason"

# How long a refused client is asked to wait before it tries again, while the queue manager has no prediction.
SATURATED_RETRY_S = 1.0
TTL_EXPIRED_RETRY_S = 10.0
UNAVAILABLE_RETRY_S = 5.0
STOPPING_RETRY_S = 1.0  # another gateway can be asked at once, and one that is started anew is there soon

_PATHS: Mapping[ModelTask, str] = {
    "embed": "/v1/embeddings",
    "score": "/v1/rerank or /v1/score",
    "classify": "/v1/classify",
}
"""Where models that are not for text are asked."""

MAX_WAIT_DIGITS = 6  # behind the point: a prediction is no more exact than a microsecond

MAX_RETRY_S = 3600.0  # much changes within an hour: nodes come, clients leave


class ApiError(Exception):
    """An answer other than the one that was asked for."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON object that clients of OpenAI expect."""
        return {"error": {"message": self.message, "type": self._type, "param": self.param, "code": self.code}}

    def response(self) -> web.Response:
        """The whole HTTP answer."""
        return web.json_response(self.body(), status=self.status, headers=self.headers)

    @property
    def _type(self) -> str:
        types = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        return types.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")


def invalid(message: str, param: str | None, code: str = "invalid_value") -> ApiError:
    """The request says something that cannot be; ``param`` is the field."""
    return ApiError(400, message, code=code, param=param)


def missing(param: str | None) -> ApiError:
    """A field that has to be there."""
    return invalid(f"{param!r} is missing", param, code="missing_required_parameter")


def malformed_json(why: str) -> ApiError:
    """The body is no JSON."""
    return ApiError(400, f"the body is not valid JSON: {why}", code="invalid_json")


def unsupported_body(what: str, given: str, supported: str) -> ApiError:
    """The body comes in a type, charset or encoding that is not taken."""
    return ApiError(415, f"the {what} {given!r} is not supported; send {supported}", code="unsupported_media_type")


def expectation_failed() -> ApiError:
    """The client expects more than 100-continue. What it wrote there is not repeated."""
    return ApiError(417, "'Expect' may be 100-continue and nothing else", code="expectation_failed")


def broken_encoding(encoding: str, why: str) -> ApiError:
    """The body is not what its Content-Encoding says."""
    return ApiError(400, f"the body is no valid {encoding}: {why}", code="invalid_encoding")


def body_too_large(max_bytes: int) -> ApiError:
    """More bytes than a body may have, once its encoding is undone."""
    return ApiError(413, f"the body has more than {max_bytes} bytes", code="request_entity_too_large")


def unsupported(param: str, instead: str = "") -> ApiError:
    """A field that Treadle does not have, or under another name. Never ignored: the answer would be another one."""
    text = f"{param!r} is not supported: use {instead!r}" if instead else f"{param!r} is not supported yet"
    return invalid(text, param, code="unsupported_parameter")


def no_grammar(why: str, param: str) -> ApiError:
    """No output can be held to what the field says; ``why`` is quoted, and bounded where it was made."""
    return invalid(f"{param!r}: {why}", param)


def model_not_found(name: str, known: list[str]) -> ApiError:
    """No such model."""
    return ApiError(
        404,
        f"the model {name!r} does not exist; there are: {', '.join(known)}",
        code="model_not_found",
        param="model",
    )


def response_not_found(message: str) -> ApiError:
    """No response is kept under this id for this tenant."""
    return ApiError(404, message, code="response_not_found", param="response_id")


def wrong_task(name: str, has: ModelTask, task: ModelTask, able: list[str]) -> ApiError:
    """The model ``has`` another task than ``task``; ``able``: those that have this one."""
    message = f"the model {name!r} gives {TASK_ANSWERS[has]} and no {TASK_ANSWERS[task]}"
    if task == "generate":
        message += f": ask for them at {_PATHS[has]}"
    elif able:
        message += f"; these do: {', '.join(able)}"
    else:
        message += f"; a model does with task: {task} in the configuration"
    return invalid(message, "model", code="model_not_supported")


def context_length_exceeded(max_model_len: int, prompt_tokens: int, max_tokens: int, param: str) -> ApiError:
    """Prompt and answer do not fit into the model's context."""
    return invalid(
        f"the model's context length is {max_model_len} tokens, but the request is for {prompt_tokens + max_tokens} "
        f"({prompt_tokens} in the prompt, {max_tokens} for the answer)",
        param,
        code="context_length_exceeded",
    )


def prompt_too_long(max_model_len: int, num_characters: int, most: int, param: str) -> ApiError:
    """The text cannot fit, whatever its tokens turn out to be."""
    return invalid(
        f"the model's context length is {max_model_len} tokens, which hold {most} characters at the very most, but the "
        f"prompt has {num_characters}",
        param,
        code="context_length_exceeded",
    )


def too_many_tokens(num_candidates: int, max_tokens: int, limit: int, param: str) -> ApiError:
    """Each candidate is short enough, but together they are too long."""
    return invalid(
        f"{num_candidates} candidates of {max_tokens} tokens are {num_candidates * max_tokens} tokens, and a request "
        f"with several candidates may have {limit}: ask for fewer candidates or for shorter ones",
        param,
    )


def refused_by_node(why: str) -> ApiError:
    """What a node cannot hold, or does not take: only it knows its memory."""
    return invalid(f"no node can run this request: {why}", None, code="request_too_large")


def wrong_key(missing: bool) -> ApiError:
    """No key, or one that is not configured."""
    needed = "an API key is needed: 'Authorization: Bearer KEY', or 'x-api-key: KEY'"
    message = needed if missing else "the API key is wrong"
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def key_revoked() -> ApiError:
    """The key was valid when the request came, and is not any more."""
    return ApiError(401, "the API key was revoked", code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def slo_not_allowed(wanted: str, allowed: list[str]) -> ApiError:
    """The key may not ask for this promise."""
    return ApiError(
        403,
        f"this API key may not ask for {wanted}; it may ask for: {', '.join(allowed) or 'nothing'}",
        code="slo_not_allowed",
        param="slo",
    )


def saturated(max_inflight: int, wait_s: float | None) -> ApiError:
    """This gateway has as many requests as it may hold. ``wait_s``: predicted until there is room, None if unknown."""
    retry_s = SATURATED_RETRY_S if wait_s is None else wait_s
    return dropped(429, f"{max_inflight} requests are in flight, which is the limit", "saturated", retry_s)


def saturated_bytes(max_inflight_bytes: int, wait_s: float | None) -> ApiError:
    """This gateway may not hold what the request needs beside the others. ``wait_s`` as for `saturated`."""
    retry_s = SATURATED_RETRY_S if wait_s is None else wait_s
    message = f"with this request, more than {max_inflight_bytes} bytes of requests would be in flight"
    return dropped(429, message, "saturated", retry_s)


def saturated_share(share: int, max_inflight: int, wait_s: float | None) -> ApiError:
    """The tenant has its share of the slots, and the few that are free are for others; otherwise as `saturated`."""
    message = (
        f"this tenant's requests in flight are at its share ({share} of {max_inflight}), and what is free is kept for "
        "other tenants"
    )
    return _of_tenant(message, wait_s)


def saturated_share_bytes(share_bytes: int, max_inflight_bytes: int, wait_s: float | None) -> ApiError:
    """The same of bytes."""
    message = (
        f"with this request, the bytes of this tenant's requests in flight would be above its share ({share_bytes} of "
        f"{max_inflight_bytes}), and what is free is kept for other tenants"
    )
    return _of_tenant(message, wait_s)


def too_many_of_key(max_inflight: int, wait_s: float | None) -> ApiError:
    """The key has as many requests in flight as it may have. ``wait_s`` as for `saturated`."""
    retry_s = SATURATED_RETRY_S if wait_s is None else wait_s
    message = f"this API key may have {max_inflight} requests in flight at a time, and has as many"
    return dropped(429, message, "saturated", retry_s, code="rate_limit_exceeded")


def too_many_a_minute(what: str, per_minute: float, wait_s: float) -> ApiError:
    """The key has had as many ``what`` (requests, tokens) within a minute as it may; ``wait_s`` until there is more."""
    message = f"this API key may have {per_minute:g} {what} a minute here, and has had as many"
    return dropped(429, message, "saturated", wait_s, code="rate_limit_exceeded")


def _of_tenant(message: str, wait_s: float | None) -> ApiError:
    retry_s = SATURATED_RETRY_S if wait_s is None else wait_s
    return dropped(429, message, "saturated", retry_s, code="tenant_saturated")


def no_memory() -> ApiError:
    """The queue has no memory to spare for another request. Each that ends gives some back, long as others wait."""
    return dropped(429, "the memory of the queue is full", "saturated", UNAVAILABLE_RETRY_S, code="no_memory")


def would_be_late(rejection: Rejection, slo: Slo) -> ApiError:
    """The predicted wait breaks the promise, and the class would rather know at once than be late."""
    wait_s = _apart(rejection.wait_s, slo)
    return dropped(
        429,
        f"the predicted wait is {wait_s} s, too long for the promise {slo.name!r} ({_in_numbers(slo)}); "
        "ask again later, or for a promise that leaves more time",
        "saturated",
        rejection.retry_after_s,
        code="would_be_late",
    )


def ttl_expired(queue_ttl_s: float, wait_s: float | None) -> ApiError:
    """The request waited in the queue for as long as its class allows, and no token came.

    ``wait_s`` is the predicted wait of the next such request, None if unknown.
    """
    return dropped(
        429,
        f"no token of an answer has come within {queue_ttl_s:g} s, and the request was dropped",
        "ttl-expired",
        TTL_EXPIRED_RETRY_S if wait_s is None else wait_s,
    )


def no_endpoints(why: str) -> ApiError:
    """Nothing behind the gateway can serve the request now."""
    return dropped(503, why, "no-endpoints", UNAVAILABLE_RETRY_S)


def gateway_stopping() -> ApiError:
    """This gateway is asked to stop, or has failed; another one, or its next life, can answer."""
    return dropped(
        503, "the gateway is shutting down; ask again", "no-endpoints", STOPPING_RETRY_S, code="gateway_stopping"
    )


def engine_crashed(end: Crashed) -> ApiError:
    """Engines die with the request: it is not tried again, and trying it once more would cost others their engine."""
    times = "twice" if end.num_crashes == 2 else f"{end.num_crashes} times"
    message = f"request {end.request_id} crashed the engine that ran it {times} and will not be tried again"
    return ApiError(500, message, code="engine_crashed")


def bad_http() -> ApiError:
    """What came is no HTTP request. Nothing of it is repeated: it may hold a key."""
    return ApiError(
        400, "this is no valid HTTP request: its first line, a header or its framing is wrong", code="bad_http"
    )


def too_many_connections(limit: int) -> ApiError:
    """This gateway has as many connections as it may hold, and all of them are in use."""
    message = f"{limit} connections are open, which is the limit, and none of them is idle"
    return dropped(503, message, "saturated", SATURATED_RETRY_S, code="too_many_connections")


def generation_failed(why: str = "") -> ApiError:
    """What the node sent is no answer."""
    return ApiError(500, f"generation failed on the node{': ' if why else ''}{why}", code="generation_failed")


def internal() -> ApiError:
    """Something broke; the log knows what, under the request's id."""
    return ApiError(500, "the server failed to answer; its log has the details under this request id", code="internal")


def of_http_exception(error: web.HTTPException) -> ApiError:
    """aiohttp's own refusals (no such path, wrong method, body too large), in OpenAI's shape."""
    message = {
        404: "there is no such path",
        405: "this path does not have that method",
        413: "the body is too large",
    }.get(error.status, error.reason)
    kept = {name: value for name, value in error.headers.items() if name.lower() in {"allow", "location"}}
    return ApiError(error.status, message, code=error.reason.lower().replace(" ", "_"), headers=kept)


def _in_numbers(slo: Slo) -> str:
    return ", ".join(f"{name} {seconds:g}" for name, seconds in _promised(slo).items())


def _promised(slo: Slo) -> dict[str, float]:
    numbers = {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s, "deadline_s": slo.deadline_s}
    return {name: seconds for name, seconds in numbers.items() if seconds is not None}


def _apart(wait_s: float, slo: Slo) -> str:
    """With as many digits as it takes to see that it is none of the numbers that are promised."""
    promised = {float(f"{seconds:g}") for seconds in _promised(slo).values()}
    texts = (f"{wait_s:.{digits}f}" for digits in range(1, MAX_WAIT_DIGITS))
    return next((text for text in texts if float(text) not in promised), f"{wait_s:.{MAX_WAIT_DIGITS}f}")


def dropped(status: int, message: str, reason: str, retry_s: float, code: str | None = None) -> ApiError:
    """``Retry-After`` has whole seconds: a client that keeps to it is not early."""
    retry_after = math.ceil(min(max(retry_s, 1.0), MAX_RETRY_S))
    headers = {"Retry-After": str(retry_after), DROPPED_REASON_HEADER: reason}
    return ApiError(status, message, code=code or reason.replace("-", "_"), headers=headers)
