"""``GET /v1/models``: what there is to ask for."""

from __future__ import annotations

import msgspec
from aiohttp import web

from gateway.endpoints.job_parts import find_model
from gateway.http.context import CONTEXT, STARTED_S
from gateway.models.models import ServedModel
from gateway.openai.answers import ModelCard, ModelList


async def list_models(request: web.Request) -> web.Response:
    """All models, each with its adapters behind it."""
    cards = [_card(request, model) for model in request.app[CONTEXT].models.values()]
    return _json(ModelList(data=cards))


async def show_model(request: web.Request) -> web.Response:
    """One model; `ApiError` 404 if there is none of that name."""
    return _json(_card(request, find_model(request.app[CONTEXT], request.match_info["name"])))


def _card(request: web.Request, model: ServedModel) -> ModelCard:
    name, created = model.name, request.app[STARTED_S]
    parent = None if model.base is None else model.base.name
    return ModelCard(id=name, created=created, root=name, parent=parent, max_model_len=model.max_model_len)


def _json(answer: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
