"""``/v1/responses/{id}``: answers that are kept."""

from __future__ import annotations

from aiohttp import web

from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.paging import page_query
from gateway.http.context import CLIENT, CONTEXT
from gateway.inflight.kept_responses import KeptResponse, KeptResponses
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.openai.errors import errors
from gateway.responses.answer import DeletedResponse, InputItemList

MAX_ITEMS_A_PAGE, ITEMS_A_PAGE = 100, 20  # as OpenAI has them
MAX_ID_CHARACTERS = 64


async def show_response(http: web.Request) -> web.Response:
    """As its client got it."""
    if http.query:  # `stream`, `include` and such: there is the whole answer and nothing else
        name = next(iter(http.query))
        raise errors.invalid(f"{name[:MAX_ID_CHARACTERS]!r} is not a known parameter", name, "unknown_parameter")
    _, found = await _found(http)
    return web.Response(body=bytes(found.answer), content_type="application/json")


async def list_input_items(http: web.Request) -> web.Response:
    """What was said before it, from the conversation's beginning on; the newest first unless ``order=asc``."""
    query = page_query(http, MAX_ITEMS_A_PAGE, ITEMS_A_PAGE, {"order": ("asc", "desc")})
    _, found = await _found(http)
    items = found.items[: found.num_input]
    if query.get("order") != "asc":
        items.reverse()
    if "after" in query:
        place = next((place for place, item in enumerate(items) if item["id"] == query["after"]), None)
        if place is None:
            raise errors.invalid("'after' names no item of this response", "after")
        items = items[place + 1 :]
    page = items[: int(query["limit"])]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return json_answer(InputItemList(data=page, first_id=first, last_id=last, has_more=len(items) > len(page)))


async def remove_response(http: web.Request) -> web.Response:
    """Keep it no longer; answers that went on from it stay."""
    kept, _ = await _found(http)
    response_id = http.match_info["response"]
    try:
        await kept.forget(response_id)
    except QueueUnavailableError as error:
        raise errors.no_endpoints("the queue cannot be reached") from error
    return json_answer(DeletedResponse(id=response_id))


async def _found(http: web.Request) -> tuple[KeptResponses, KeptResponse]:
    kept, response_id = http.app[CONTEXT].kept_responses, http.match_info["response"]
    if kept is None:
        raise errors.response_not_found("no response is kept here: the configuration has no gateway.keep_responses_s")
    try:
        found = await kept.find(http[CLIENT].tenant, response_id) if len(response_id) <= MAX_ID_CHARACTERS else None
    except QueueUnavailableError as error:
        raise errors.no_endpoints("the queue cannot be reached") from error
    if found is None:
        raise errors.response_not_found("no such response is kept, or not any more")
    return kept, found[0]
