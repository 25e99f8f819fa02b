"""``POST /tokenize`` and ``POST /detokenize``, as vLLM has them, for clients that make prompts of an exact length."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from gateway import admission, errors
from gateway.body import BODY_BYTES, announced_bytes, read_body
from gateway.chat import encode_messages
from gateway.context import CLIENT, CONTEXT, SLOTS, GatewayContext
from gateway.models import ServedModel
from gateway.openai_tokenize import (
    MAX_CHARACTERS,
    DetokenizeAnswer,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeRequest,
)

Answer = TypeVar("Answer")


async def tokenize(http: web.Request) -> web.Response:
    """The tokens of a text or a conversation; it holds a slot meanwhile, since it costs as much as a request does."""
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, TokenizeRequest)
        held.shrink(http[BODY_BYTES])
        model = _model(http.app[CONTEXT], body.model)
        tokens = await _aside(lambda: _tokens(body, model), _num_characters(body))
        token_strs = [model.tokenizer.token_text(token) for token in tokens] if body.return_token_strs else None
        count, most = len(tokens), model.max_model_len
        return _json(TokenizeAnswer(count=count, max_model_len=most, tokens=tokens, token_strs=token_strs))


async def detokenize(http: web.Request) -> web.Response:
    """The text of tokens; what is no valid UTF-8 becomes U+FFFD, and control tokens stand there by name."""
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, DetokenizeRequest)
        held.shrink(http[BODY_BYTES])
        tokenizer = _model(http.app[CONTEXT], body.model).tokenizer
        admission.check_token_ids(tokenizer, body.tokens, "tokens")
        text = await _aside(lambda: tokenizer.written(body.tokens), len(body.tokens))
        return _json(DetokenizeAnswer(prompt=text))


def _model(context: GatewayContext, name: str | None) -> ServedModel:
    if name is not None:
        return admission.find_model(context, name)
    if len(context.models) > 1:
        raise errors.invalid(
            f"'model' is missing; there are: {', '.join(context.models)}", "model", code="missing_required_parameter"
        )
    return next(iter(context.models.values()))


def _num_characters(body: TokenizeRequest) -> int:
    if body.messages is None:
        return len(body.prompt or "")
    num_characters = sum(len(message.content) for message in body.messages)
    if num_characters > MAX_CHARACTERS:
        raise errors.invalid(f"the messages have more than {MAX_CHARACTERS} characters", "messages")
    return num_characters


def _tokens(body: TokenizeRequest, model: ServedModel) -> list[int]:
    tokenizer = model.tokenizer
    if body.messages is None:
        return tokenizer.encode(body.prompt or "", has_prefix=body.add_special_tokens is not False)
    tokens = encode_messages(body.messages, model, is_open=body.add_generation_prompt)
    return tokenizer.prefixed(tokens) if body.add_special_tokens else tokens


async def _aside(work: Callable[[], Answer], size: int) -> Answer:
    return work() if size <= admission.MAX_INLINE_CHARACTERS else await asyncio.to_thread(work)


def _json(answer: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
