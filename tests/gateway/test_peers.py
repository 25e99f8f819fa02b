"""The very requests of guidellm and `vllm bench serve`, as `make test-peers` saw them, and what each tool reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway.conftest import GatewayFactory
from tests.gateway.memory_queue import saying

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "peers" / "requests.json").read_text())
# Asked by vLLM's tool, which does without where the answer is not 200: operators ask for metrics at another port.
ASKED = [request for request in RECORDED if request["path"] != "/metrics"]
SAID = "abcdefgh"


def _name(request: dict[str, Any]) -> str:
    tool = "guidellm" if "httpx" in request["headers"]["user-agent"] else "vllm"
    return f"{tool} {request['method']} {request['path']}"


def test_every_door_is_recorded() -> None:
    assert {_name(request) for request in ASKED} == {
        "guidellm GET /health",
        "guidellm GET /v1/models",
        "guidellm POST /v1/chat/completions",
        "guidellm POST /v1/completions",
        "vllm GET /v1/models",
        "vllm POST /tokenize",
        "vllm POST /v1/chat/completions",
        "vllm POST /v1/completions",
    }


@pytest.mark.parametrize("request_", ASKED, ids=_name)
async def test_what_a_tool_sends_is_answered_with_what_it_reads(
    start_gateway: GatewayFactory, request_: dict[str, Any]
) -> None:
    gateway = await start_gateway(saying(SAID, "length"))
    method, path, body = request_["method"], request_["path"], request_["body"]
    async with gateway.http.request(method, path, data=body or None, headers=request_["headers"]) as response:
        assert response.status == 200, await response.text()
        await _read(response, path, json.loads(body) if body else {})


async def _read(response: aiohttp.ClientResponse, path: str, asked: dict[str, Any]) -> None:
    if path == "/health":
        assert await response.read() == b""
    elif path == "/v1/models":
        first = (await response.json())["data"][0]
        assert (first["id"], first["root"]) == ("tiny", "tiny")
    elif path == "/tokenize":
        assert all(type(token) is int for token in (await response.json())["tokens"])
    else:
        assert response.content_type == "text/event-stream"
        _read_stream(await response.text(), asked)


def _read_stream(text: str, asked: dict[str, Any]) -> None:
    """Events are parted by an empty line and end with ``[DONE]``; counts come last, without choices, and where
    they are wanted all the time, with each."""
    events = [event.removeprefix("data: ") for event in text.strip().split("\n\n") if not event.startswith(":")]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert not any("error" in chunk for chunk in chunks)
    last = chunks.pop()
    assert last["choices"] == []
    assert (
        last["usage"]["completion_tokens"] == len(SAID) == asked.get("max_tokens", asked.get("max_completion_tokens"))
    )
    assert last["usage"]["prompt_tokens"] > 0
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    said = [choice["delta"].get("content") if "messages" in asked else choice["text"] for choice in choices]
    assert "".join(filter(None, said)) == SAID
    if asked["stream_options"].get("continuous_usage_stats"):
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-1] == len(SAID)
