"""``GET /v1/models``: what there is to ask for."""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from gateway.endpoints.call.job_parts import find_model
from gateway.endpoints.call.json_answer import json_answer
from gateway.http.context import CONTEXT, STARTED_S
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import ModelCard, ModelList


async def list_models(request: web.Request) -> web.Response:
    """All models, each with its aliases and its adapters behind it."""
    cards = [_card(request, name, model) for name, model in request.app[CONTEXT].models.items()]
    return json_answer(ModelList(data=cards))


async def show_model(request: web.Request) -> web.Response:
    """One model; `ApiError` 404 if there is none of that name."""
    name = request.match_info["name"]
    return json_answer(_card(request, name, find_model(request.app[CONTEXT], name)))


def _card(request: web.Request, name: str, model: ServedModel) -> ModelCard:
    created, length = request.app[STARTED_S], model.max_model_len
    parent = None if model.base is None else model.base.name
    sampling = {name: value for name, value in asdict(model.sampling).items() if value is not None}
    return ModelCard(
        id=name,
        created=created,
        root=model.name,
        parent=parent,
        max_model_len=length,
        task=model.task,
        sampling=sampling,
    )
