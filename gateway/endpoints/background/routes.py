"""The routes of responses and conversations, and what they need of the application."""

from __future__ import annotations

from aiohttp import web

from gateway.endpoints.background import shown
from gateway.endpoints.background.followers import FOLLOWERS, Followers
from gateway.endpoints.background.handler import ResponsesHandler
from gateway.endpoints.background.watching import WATCHERS, watchers
from gateway.endpoints.stored import conversations, kept_responses
from gateway.http.context import METRICS, GatewayContext


def response_routes(app: web.Application, context: GatewayContext) -> list[web.RouteDef]:
    """All of them; where nothing is kept they say so."""
    app[WATCHERS] = watchers()
    if context.background is not None and context.conversations is not None:
        app[FOLLOWERS] = followers = Followers(app, context.background, context.conversations)
        app[METRICS].background.set_function(lambda: followers.num_followed)
    one, items = "/v1/conversations/{conversation}", "/v1/conversations/{conversation}/items"
    return [
        web.post("/v1/responses", ResponsesHandler().handle),
        web.get("/v1/responses/{response}", shown.show_response),
        web.delete("/v1/responses/{response}", shown.remove_response),
        web.post("/v1/responses/{response}/cancel", shown.cancel_response),
        web.get("/v1/responses/{response}/input_items", kept_responses.list_input_items),
        web.post("/v1/conversations", conversations.make_conversation),
        web.get(one, conversations.show_conversation),
        web.post(one, conversations.update_conversation),
        web.delete(one, conversations.remove_conversation),
        web.get(items, conversations.list_items),
        web.post(items, conversations.add_items),
        web.get(items + "/{item}", conversations.show_item),
        web.delete(items + "/{item}", conversations.remove_item),
    ]
