"""``/v1/responses/{id}/input_items``: what led to an answer that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from aiohttp import web

from gateway.endpoints.call.held import telling_refusals
from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.paging import page_query
from gateway.http.context import CLIENT, CONTEXT
from gateway.inflight.kept_responses import KeptResponse, KeptResponses
from gateway.openai.errors import errors, kept_errors
from gateway.responses.answer import InputItemList

MAX_ITEMS_A_PAGE, ITEMS_A_PAGE = 100, 20  # as OpenAI has them
MAX_ID_CHARACTERS = 64


async def list_input_items(http: web.Request) -> web.Response:
    """What was said before it, from the conversation's beginning on; the newest first unless ``order=asc``."""
    query = item_query(http)
    store = kept_here(http)
    with telling_refusals():
        found = await find_kept(http, store)
        if found is None:
            await refuse_unkept(http)
    return item_page(query, found.items[: found.num_input], "response")


def item_query(http: web.Request) -> dict[str, str]:
    """Of a list of items."""
    return page_query(http, MAX_ITEMS_A_PAGE, ITEMS_A_PAGE, {"order": ("asc", "desc")})


def item_page(query: dict[str, str], items: Sequence[dict[str, Any]], whose: str) -> web.Response:
    """The part of ``items`` that was asked for; `ApiError` 400 where it would begin behind none of them."""
    items = list(items)
    if query.get("order") != "asc":
        items.reverse()
    if "after" in query:
        place = next((place for place, item in enumerate(items) if item["id"] == query["after"]), None)
        if place is None:
            raise errors.invalid(f"'after' names no item of this {whose}", "after")
        items = items[place + 1 :]
    page = items[: int(query["limit"])]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return json_answer(InputItemList(data=page, first_id=first, last_id=last, has_more=len(items) > len(page)))


def response_id_of(http: web.Request) -> str:
    """The one that is asked for; `ApiError` 404 for what is no id."""
    response_id = http.match_info["response"]
    if len(response_id) > MAX_ID_CHARACTERS:
        raise _not_kept()
    return response_id


def kept_here(http: web.Request) -> KeptResponses:
    """Where answers are kept; `ApiError` 404 where none are."""
    kept = http.app[CONTEXT].kept_responses
    if kept is None:
        raise errors.response_not_found("no response is kept here: the configuration has no gateway.keep_responses_s")
    return kept


async def find_kept(http: web.Request, store: KeptResponses) -> KeptResponse | None:
    """None where it is not kept, or has not ended. `QueueUnavailableError`."""
    found = await store.find(http[CLIENT].tenant, response_id_of(http))
    return None if found is None else found[0]


async def refuse_unkept(http: web.Request) -> NoReturn:
    """Of one that was not found: `ApiError` 400 where it has not ended, else 404."""
    background = http.app[CONTEXT].background
    if background is not None and await background.find(http[CLIENT].tenant, response_id_of(http)) is not None:
        raise kept_errors.not_ended("response_id")
    raise _not_kept()


def _not_kept() -> errors.ApiError:
    return errors.response_not_found("no such response is kept, or not any more")
