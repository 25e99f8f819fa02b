"""What a client is told that asks for something that cannot be. Nothing of it reaches a node or a log."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster

SECRET = "a value that no log may hold"


async def post(cluster: Cluster, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession(cluster.url, headers={"content-type": "application/json"}) as session,
        session.post(path, data=body) as response,
    ):
        return response.status, (await response.json())["error"]


async def test_an_unknown_model_is_answered_with_those_there_are(client: AsyncOpenAI, cluster: Cluster) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.completions.create(model="no-such-model", prompt="x")
    assert caught.value.code == "model_not_found"
    assert all(name in caught.value.message for name in ["no-such-model", *cluster.models])


async def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(client: AsyncOpenAI, cluster: Cluster) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=cluster.models[0], prompt="word " * 8200, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in caught.value.message
    assert "8201" in caught.value.message or "8202" in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=cluster.models[0], prompt="word", max_tokens=8200)
    assert caught.value.param == "max_tokens"
    assert "8192" in caught.value.message
    assert "8201" in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[1, 2", b'{"model": "first", }', b"\xff\xfe{}", b"[" * 8_000])
async def test_what_is_no_json_is_refused(cluster: Cluster, body: bytes) -> None:
    status, error = await post(cluster, body)
    assert (status, error["code"], error["type"]) == (400, "invalid_json", "invalid_request_error")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": SECRET}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": 1 << 80}, "seed"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["x"] * 99}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"slo": "no-such-class"}, "slo"),
        ({"slo": {"ttft_s": -1}}, "slo.ttft_s"),
        ({"n": 0}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"1000000": 1}}, "logit_bias"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"temprature": 0.5}, "temprature"),
        ({"model": None}, "model"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(cluster: Cluster, wrong: dict[str, Any], param: str) -> None:
    body = {"model": cluster.models[0], "messages": [{"role": "user", "content": SECRET}]} | wrong
    status, error = await post(cluster, json.dumps(body).encode())
    assert (status, error["param"]) == (400, param), error
    assert SECRET not in error["message"]


async def test_a_body_that_is_too_large_is_refused(cluster: Cluster) -> None:
    body = b'{"model": "first", "messages": [{"role": "user", "content": "%b"}]}' % (b"x" * (65 << 10))
    status, error = await post(cluster, body)
    assert (status, error["type"]) == (413, "invalid_request_error")


async def test_other_paths_and_methods_are_refused_in_the_same_shape(cluster: Cluster) -> None:
    assert (await post(cluster, b"{}", "/v1/nothing"))[0] == 404
    assert (await post(cluster, b"{}", "/v1/models"))[0] == 405
