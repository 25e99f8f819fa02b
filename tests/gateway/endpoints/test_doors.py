"""What others' tools ask before and beside requests: health, version, tokens, and counts in every chunk."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gateway.models.models import ServedModel
from shared import __version__
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import saying

CHAT = [{"role": "user", "content": "hello"}]


async def post(gateway: Gateway, path: str, **body: Any) -> tuple[int, Any]:
    data = io.BytesIO(json.dumps(body).encode())
    async with gateway.http.post(path, data=data, headers={"Content-Type": "application/json"}) as response:
        return response.status, await response.json()


async def test_health_has_no_body_and_follows_readiness(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "k", "tenant": "acme"}])
    for not_ready, status in (("", 200), ("redis is away", 503)):
        gateway.state["not_ready"] = not_ready
        async with gateway.http.get("/health") as response:
            assert (response.status, await response.read()) == (status, b"")


async def test_the_version_is_told(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/version") as response:
        assert await response.json() == {"version": __version__}


async def test_a_card_has_what_that_of_vllm_has(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/v1/models/tiny") as response:
        card = await response.json()
    assert (card["root"], card["parent"], card["max_model_len"]) == ("tiny", None, 64)


async def test_a_text_becomes_tokens_and_a_text_again(start_gateway: GatewayFactory, tiny: ServedModel) -> None:
    gateway = await start_gateway()
    status, found = await post(gateway, "/tokenize", model="tiny", prompt="hello", return_token_strs=True)
    tokens = tiny.tokenizer.encode("hello")
    assert status == 200
    assert found == {"count": len(tokens), "max_model_len": 64, "tokens": tokens, "token_strs": found["token_strs"]}
    assert "".join(found["token_strs"]) == "hello"
    assert await post(gateway, "/detokenize", model="tiny", tokens=tokens) == (200, {"prompt": "hello"})


async def test_a_conversation_is_tokenised_as_a_node_would_get_it(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    _, open_ = await post(gateway, "/tokenize", model="tiny", messages=CHAT)
    await gateway.openai.chat.completions.create(model="tiny", messages=CHAT)  # type: ignore[arg-type]
    submit = await gateway.queue.next_submit()
    assert open_["count"] == submit.prompt_tokens
    _, closed = await post(gateway, "/tokenize", model="tiny", messages=CHAT, add_generation_prompt=False)
    assert open_["tokens"][: closed["count"]] == closed["tokens"]
    _, written = await post(gateway, "/detokenize", model="tiny", tokens=open_["tokens"])
    _, again = await post(gateway, "/tokenize", model="tiny", prompt=written["prompt"], add_special_tokens=False)
    assert again["tokens"] == open_["tokens"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/tokenize", {"prompt": "x"}, 400, "missing_required_parameter", "model"),
        ("/tokenize", {"model": "gpt", "prompt": "x"}, 404, "model_not_found", "model"),
        ("/tokenize", {"model": "tiny"}, 400, "invalid_value", "prompt"),
        (
            "/tokenize",
            {"model": "tiny", "prompt": "x", "chat_template_kwargs": {"a": 1}},
            400,
            "invalid_value",
            "chat_template_kwargs",
        ),
        ("/tokenize", {"model": "tiny", "prompt": "x", "messages": CHAT}, 400, "invalid_value", "prompt"),
        ("/tokenize", {"model": "base", "messages": CHAT}, 400, "no_chat_template", "model"),
        ("/tokenize", {"model": "tiny", "prompt": "x" * ((1 << 19) + 1)}, 400, "invalid_value", "prompt"),
        ("/tokenize", {"model": "tiny", "prompt": "x", "documents": []}, 400, "unknown_parameter", "documents"),
        (
            "/tokenize",
            {"model": "tiny", "prompt": "x", "tools": [{}]},
            400,
            "missing_required_parameter",
            "tools[0].type",
        ),
        ("/detokenize", {"model": "tiny", "tokens": [1 << 40]}, 400, "invalid_value", "tokens"),
        ("/detokenize", {"model": "tiny", "tokens": [-1]}, 400, "invalid_value", "tokens[0]"),
    ],
)
async def test_what_cannot_be_tokenised_is_refused_by_field(
    start_gateway: GatewayFactory, path: str, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    found, answer = await post(await start_gateway(), path, **body)
    assert (found, answer["error"]["code"], answer["error"]["param"]) == (status, code, param)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_tokens_need_a_key_where_keys_exist(start_gateway: GatewayFactory, path: str) -> None:
    status, answer = await post(await start_gateway(keys=[{"key": "k", "tenant": "acme"}]), path, model="tiny")
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_tokens_wait_for_a_slot_like_requests(start_gateway: GatewayFactory, path: str) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 1})
    async with sending(gateway.http.post("/v1/completions", json={"model": "tiny", "prompt": "x"})):
        await gateway.queue.next_submit()
        status, answer = await post(gateway, path, model="tiny")
    assert (status, answer["error"]["code"]) == (429, "saturated")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_counts_come_with_every_chunk_where_they_are_wanted(start_gateway: GatewayFactory, path: str) -> None:
    gateway = await start_gateway(saying("hello"))
    asked = {"prompt": "ab"} if path == "/v1/completions" else {"messages": CHAT}
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"model": "tiny", "stream": True, "stream_options": options, **asked}
    async with gateway.http.post(path, json=body) as response:
        events = (await response.text()).strip().split("\n\n")
    usages = [json.loads(event.removeprefix("data: "))["usage"] for event in events[:-1]]
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts)
    assert counts[-1] == len("hello") + 1  # with the end token
    assert all(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)


async def test_running_counts_are_counts(start_gateway: GatewayFactory) -> None:
    body = {"model": "tiny", "prompt": "x", "stream": True, "stream_options": {"continuous_usage_stats": True}}
    status, answer = await post(await start_gateway(), "/v1/completions", **body)
    assert (status, answer["error"]["param"]) == (400, "stream_options")


@pytest.mark.parametrize("field", [{"tool_choice": "none"}, {"verbosity": "medium"}, {"stop": None}])
async def test_fields_that_ask_for_nothing_are_taken(start_gateway: GatewayFactory, field: dict[str, Any]) -> None:
    status, _ = await post(
        await start_gateway(saying("a")), "/v1/chat/completions", model="tiny", messages=CHAT, **field
    )
    assert status == 200
