"""What a request does not say of how tokens are drawn is as the model has it, in all interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.messages.requests.payload import Sampling
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.tiny import ids

OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "presence_penalty": 0.5}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def gateway(start_gateway: GatewayFactory, tiny_file: Path) -> Gateway:
    return await start_gateway(models=[{"name": "own", "source": str(tiny_file), "sampling": OWN}])


async def drawn(gateway: Gateway, path: str, **body: Any) -> tuple[Sampling, dict[str, Any]]:
    async with sending(gateway.http.post(path, json={"model": "own", **body})) as answer:
        submit = await gateway.queue.next_submit()
        sampling = gateway.queue.payloads[submit.request_id].sampling
        await gateway.queue.send(submit, 0, ids("a"), "length")
        return sampling, await answer()


def told(sampling: Sampling) -> dict[str, float]:
    return {name: getattr(sampling, name) for name in OWN}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", CHAT | {"max_tokens": 4}),
    ],
)
async def test_all_interfaces(gateway: Gateway, path: str, body: dict[str, Any]) -> None:
    sampling, _ = await drawn(gateway, path, **body)
    assert told(sampling) == OWN
    sampling, _ = await drawn(gateway, path, **body, temperature=1, top_p=0.5)
    assert told(sampling) == OWN | {"temperature": 1.0, "top_p": 0.5}


async def test_a_request_says_otherwise(gateway: Gateway) -> None:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
    sampling, _ = await drawn(gateway, "/v1/chat/completions", **CHAT, **plain)
    assert told(sampling) == plain


async def test_null_is_not_said(gateway: Gateway) -> None:
    sampling, _ = await drawn(gateway, "/v1/chat/completions", **CHAT, temperature=None)
    assert told(sampling) == OWN


async def test_beams_are_not_drawn(gateway: Gateway) -> None:
    sampling, _ = await drawn(gateway, "/v1/completions", prompt="hi", use_beam_search=True)
    assert (sampling.temperature, sampling.repetition_penalty, sampling.presence_penalty) == (1.0, 1.0, 0.0)


async def test_a_response_tells_how_it_was_drawn(gateway: Gateway) -> None:
    _, answer = await drawn(gateway, "/v1/responses", input="hi", top_p=0.5)
    assert (answer["temperature"], answer["top_p"]) == (0.6, 0.5)


async def test_the_list_of_models_tells(gateway: Gateway) -> None:
    async with gateway.http.get("/v1/models/own") as response:
        assert (await response.json())["sampling"] == OWN


async def test_a_model_that_says_nothing_is_drawn_as_openai_s(start_gateway: GatewayFactory, tiny_file: Path) -> None:
    gateway = await start_gateway(models=[{"name": "own", "source": str(tiny_file)}])
    sampling, _ = await drawn(gateway, "/v1/chat/completions", **CHAT)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.repetition_penalty) == (1.0, 1.0, 0, 1.0)
    async with gateway.http.get("/v1/models/own") as response:
        assert (await response.json())["sampling"] == {}
