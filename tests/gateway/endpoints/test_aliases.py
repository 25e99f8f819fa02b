"""A model under several names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import saying

Starter = Callable[[], Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tiny_file: Path) -> Starter:
    """A gateway with one model, which is called by three names."""

    async def start() -> Gateway:
        models = [{"name": "tiny", "source": str(tiny_file), "aliases": ["gpt-4o-mini", "org/default"]}]
        return await start_gateway(saying("Hello!"), models=models)

    return start


async def test_each_name_is_answered_and_all_are_one_to_the_queue(start: Starter) -> None:
    gateway = await start()
    for name in ("tiny", "gpt-4o-mini", "org/default"):
        answer = await gateway.openai.completions.create(model=name, prompt="x")
        assert (answer.model, answer.choices[0].text) == (name, "Hello!")
        submit = await gateway.queue.next_submit()
        assert submit.model == "tiny"
    assert (
        gateway.metric("treadle_requests_total", model="tiny", slo_class="interactive", tenant="default", outcome="ok")
        == 3
    )


async def test_the_catalogue_lists_them_behind_their_model(start: Starter) -> None:
    gateway = await start()
    models = (await gateway.openai.models.list()).data
    assert [(one.id, (one.model_extra or {})["root"]) for one in models] == [
        ("tiny", "tiny"),
        ("gpt-4o-mini", "tiny"),
        ("org/default", "tiny"),
    ]
    assert (await gateway.openai.models.retrieve("org/default")).id == "org/default"


async def test_one_model_is_one_whatever_it_is_called(start: Starter) -> None:
    gateway = await start()
    async with gateway.http.post("/tokenize", json={"prompt": "x"}) as response:
        assert response.status == 200, "there is no other model that could be meant"
    status, error, _ = await refused(gateway, "/v1/completions", {"model": "gpt-5", "prompt": "x"})
    assert (status, error["message"]) == (
        404,
        "the model 'gpt-5' does not exist; there are: tiny, gpt-4o-mini, org/default",
    )
