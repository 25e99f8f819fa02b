"""``/v1/conversations``: conversations that responses go on with, and their items."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import structs
from pydantic import BaseModel

from gateway.endpoints.call.held import (
    CONVERSATION_PREFIX,
    check_conversation_id,
    take_conversation,
    telling_refusals,
)
from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.kept_responses import item_page, item_query
from gateway.http.body import BODY_BYTES, announced_bytes, read_body
from gateway.http.context import CLIENT, CONTEXT, REQUEST_ID, SLOTS
from gateway.kept.conversations import ConversationRecord, ConversationStore
from gateway.kept.held_conversation import HeldConversation
from gateway.openai.errors import kept_errors
from gateway.responses.answer import InputItemList
from gateway.responses.requests.conversation_api import (
    ConversationAnswer,
    ConversationItemsRequest,
    ConversationRequest,
    ConversationUpdate,
    DeletedConversation,
)
from gateway.responses.requests.items import InputItem
from gateway.responses.requests.kept_conversation import renamed, written_item

Body = TypeVar("Body", bound=BaseModel)


async def make_conversation(http: web.Request) -> web.Response:
    """A new one."""
    store = _store(http)
    async with _body(http, ConversationRequest) as body:
        conversation_id = f"{CONVERSATION_PREFIX}{http[REQUEST_ID]}"
        made = ConversationRecord(
            tenant=http[CLIENT].tenant,
            created_at=int(time.time()),
            metadata=body.metadata or {},
            items=_items(http, body.items),
        )
        with telling_refusals():
            await store.make(conversation_id, made)
        return _shown(conversation_id, made)


async def show_conversation(http: web.Request) -> web.Response:
    """One, without its items."""
    return _shown(http.match_info["conversation"], await _found(http))


async def update_conversation(http: web.Request) -> web.Response:
    """Other metadata."""
    async with _body(http, ConversationUpdate) as body, _held(http) as held:
        changed = structs.replace(held.found, metadata=body.metadata)
        await _write(held, changed)
        return _shown(http.match_info["conversation"], changed)


async def remove_conversation(http: web.Request) -> web.Response:
    """Keep it no longer; a response that is under way in it becomes part of nothing."""
    await _found(http)
    conversation_id = http.match_info["conversation"]
    with telling_refusals():
        await _store(http).forget(conversation_id)
    return json_answer(DeletedConversation(id=conversation_id))


async def list_items(http: web.Request) -> web.Response:
    """The newest first unless ``order=asc``."""
    query = item_query(http)
    return item_page(query, (await _found(http)).items, "conversation")


async def add_items(http: web.Request) -> web.Response:
    """They become its last ones."""
    async with _body(http, ConversationItemsRequest) as body, _held(http) as held:
        items = _items(http, body.items)
        await _write(held, structs.replace(held.found, items=[*held.found.items, *items]))
        return json_answer(InputItemList(data=items, first_id=items[0]["id"], last_id=items[-1]["id"], has_more=False))


async def show_item(http: web.Request) -> web.Response:
    """One of its items."""
    item = _item_of(http, (await _found(http)).items)
    return web.Response(body=msgspec.json.encode(item), content_type="application/json")


async def remove_item(http: web.Request) -> web.Response:
    """It has this item no longer; the conversation is answered, as OpenAI does."""
    async with _held(http) as held:
        gone = _item_of(http, held.found.items)
        await _write(held, structs.replace(held.found, items=[item for item in held.found.items if item is not gone]))
        return _shown(http.match_info["conversation"], held.found)


def _store(http: web.Request) -> ConversationStore:
    store = http.app[CONTEXT].conversations
    if store is None:
        raise kept_errors.no_conversations()
    return store


@asynccontextmanager
async def _body(http: web.Request, kind: type[Body]) -> AsyncIterator[Body]:
    """A body, which holds a slot while it is worked on."""
    _store(http)
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, kind)
        held.shrink(http[BODY_BYTES])
        yield body


@asynccontextmanager
async def _held(http: web.Request) -> AsyncIterator[HeldConversation]:
    """The conversation that is asked for, locked meanwhile."""
    conversation_id, operation = http.match_info["conversation"], f"call_{http[REQUEST_ID]}"
    with telling_refusals():
        held, _ = await take_conversation(_store(http), http[CLIENT].tenant, conversation_id, operation)
        try:
            yield held
        finally:
            await held.unlock()


async def _found(http: web.Request) -> ConversationRecord:
    store, conversation_id = _store(http), http.match_info["conversation"]
    check_conversation_id(conversation_id)
    with telling_refusals():
        found = await store.find(http[CLIENT].tenant, conversation_id)
    if found is None:
        raise kept_errors.conversation_not_found()
    return found


async def _write(held: HeldConversation, changed: ConversationRecord) -> None:
    if not await held.write(changed):
        raise kept_errors.conversation_not_found()


def _items(http: web.Request, given: Sequence[InputItem]) -> list[dict[str, Any]]:
    """As they are kept, each with an id of its own."""
    names = [f"{http[REQUEST_ID]}_i{place}" for place in range(len(given))]
    return [renamed(written_item(item, name), name) for item, name in zip(given, names, strict=True)]


def _item_of(http: web.Request, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = next((item for item in items if item["id"] == http.match_info["item"]), None)
    if found is None:
        raise kept_errors.item_not_found()
    return found


def _shown(conversation_id: str, conversation: ConversationRecord) -> web.Response:
    created_at, metadata = conversation.created_at, conversation.metadata
    return json_answer(ConversationAnswer(id=conversation_id, created_at=created_at, metadata=metadata))
