"""``POST /tokenize`` and ``POST /detokenize``, as vLLM has them, for clients that make prompts of an exact length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from aiohttp import web

from gateway.endpoints.call import job_parts
from gateway.endpoints.chats.chat import CHARACTERS_PER_MESSAGE
from gateway.endpoints.chats.chat_prompt import encode_messages
from gateway.http.body import BODY_BYTES, announced_bytes, read_body
from gateway.http.context import CLIENT, CONTEXT, SLOTS, GatewayContext
from gateway.models.models import ServedModel
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from gateway.openai.errors import errors
from gateway.openai.requests.chat_messages import ChatMessage
from gateway.openai.requests.tools import Tool, num_told_characters
from gateway.openai.tokenize import (
    MAX_CHARACTERS,
    DetokenizeAnswer,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeRequest,
)
from gateway.tenants.turn_threads import THREADS


async def tokenize(http: web.Request) -> web.Response:
    """The tokens of a text or a conversation; it holds a slot meanwhile, since it costs as much as a request does."""
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, TokenizeRequest)
        held.shrink(http[BODY_BYTES])
        model = _model(http.app[CONTEXT], body.model)
        return await worked_out(http, lambda: _tokenized(body, model), _num_characters(body))


async def detokenize(http: web.Request) -> web.Response:
    """The text of tokens; what is no valid UTF-8 becomes U+FFFD, and control tokens stand there by name."""
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, DetokenizeRequest)
        held.shrink(http[BODY_BYTES])
        tokenizer = _model(http.app[CONTEXT], body.model).tokenizer
        return await worked_out(http, lambda: _detokenized(body, tokenizer), len(body.tokens))


def _model(context: GatewayContext, name: str | None) -> ServedModel:
    if name is not None:
        return job_parts.find_model(context, name)
    models = {model.name: model for model in context.models.values() if model.base is None}
    if len(models) != 1:
        raise errors.invalid(
            f"'model' is missing; there are: {', '.join(context.models)}", "model", code="missing_required_parameter"
        )
    (first,) = models.values()
    return first  # a model's adapters read as it does


def _num_characters(body: TokenizeRequest) -> int:
    if body.messages is None:
        return len(body.prompt or "")
    return num_characters_of(body.messages, body.tools)


def num_characters_of(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> int:
    """Of a conversation, nearly; `ApiError` 400 for more than are tokenised at once."""
    if any(message.images for message in messages):
        raise errors.invalid("tokens of images are not counted here: leave them out", "messages")
    num_characters = sum(message.num_characters for message in messages)
    if num_characters > MAX_CHARACTERS:
        raise errors.invalid(f"the messages have more than {MAX_CHARACTERS} characters", "messages")
    return num_characters + CHARACTERS_PER_MESSAGE * len(messages) + sum(map(num_told_characters, tools))


def _tokenized(body: TokenizeRequest, model: ServedModel) -> TokenizeAnswer:
    tokens = _tokens(body, model)
    token_strs = [model.tokenizer.token_text(token) for token in tokens] if body.return_token_strs else None
    return TokenizeAnswer(count=len(tokens), max_model_len=model.max_model_len, tokens=tokens, token_strs=token_strs)


def _tokens(body: TokenizeRequest, model: ServedModel) -> list[int]:
    tokenizer = model.tokenizer
    if body.messages is None:
        return tokenizer.encode(body.prompt or "", has_prefix=body.add_special_tokens is not False)
    settings, is_open = body.chat_template_kwargs, body.add_generation_prompt
    tokens = encode_messages(body.messages, model, body.tools, is_open=is_open, settings=settings)
    return tokenizer.prefixed(tokens) if body.add_special_tokens else tokens


def _detokenized(body: DetokenizeRequest, tokenizer: PromptTokenizer) -> DetokenizeAnswer:
    job_parts.check_token_ids(tokenizer, body.tokens, "tokens")
    return DetokenizeAnswer(prompt=tokenizer.written(body.tokens))


async def worked_out(http: web.Request, work: Callable[[], msgspec.Struct], size: int) -> web.Response:
    """An answer that takes as long as a text of this many characters; a long one is made on a thread."""

    def body() -> bytes:
        return msgspec.json.encode(work())

    is_short = size <= job_parts.MAX_INLINE_CHARACTERS
    data = body() if is_short else await http.app[THREADS].of(http[CLIENT].tenant).run_text(body)
    return web.Response(body=data, content_type="application/json")
