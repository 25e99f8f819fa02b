"""Whose caches a request uses: as its body and its tenant say, and told as a digest alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest

from gateway.endpoints.pooled.classes import ClassifyEndpoint
from gateway.endpoints.pooled.embeddings import EmbeddingEndpoint
from gateway.endpoints.pooled.scores import RerankEndpoint, ScoreEndpoint
from gateway.http.body import parse_body
from gateway.openai.requests.schema import MAX_SALT_CHARACTERS
from shared.messages.codec import encode
from shared.messages.prefixes.partitions import owner_of, partition_of
from shared.messages.prefixes.prefixes import prompt_prefix
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Submit
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import saying
from tests.gateway.tiny import ids, write_model

SALT = "Zk3-not-to-be-told"
TEXT, MESSAGES = "/v1/completions", [{"role": "user", "content": "hello"}]
BODIES: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": "x" * 40},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 4},
}
KEYS = [{"key": f"key of {name}", "tenant": name} for name in ("acme", "bolt", "crux")]
TENANTS = {"acme": {"cache": "own"}, "bolt": {"cache": "own"}, "crux": {"weight": 2}}


async def sent(gateway: Gateway, path: str = TEXT, key: str = "", **more: Any) -> tuple[Submit, Payload]:
    """What queue and nodes hear of a request."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "tiny"} | BODIES.get(path, {}) | more
    async with sending(gateway.http.post(path, json=body, headers=headers)):
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
    await gateway.queue.next_cancel()
    return submit, payload


@pytest.mark.parametrize("path", BODIES)
async def test_a_salt_parts_what_is_cached_of_a_prompt(start_gateway: GatewayFactory, path: str) -> None:
    gateway = await start_gateway(engine={"block_size": 4})
    submit, payload = await sent(gateway, path, cache_salt=SALT)
    partition = partition_of("", SALT)
    assert payload.partition == partition
    assert submit.prefix == prompt_prefix(payload.prompt_token_ids, 4, owner_of("", partition)) is not None
    nothings: list[dict[str, Any]] = [{}, {"cache_salt": None}]
    for nothing in nothings:
        plain, bare = await sent(gateway, path, **nothing)
        assert bare.partition == ""
        assert plain.prefix == prompt_prefix(bare.prompt_token_ids, 4) != submit.prefix


async def test_embeddings_too(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    texts = write_model(tmp_path / "texts.gguf", template=None)
    gateway = await start_gateway(models=[{"name": "texts", "source": str(texts), "task": "embed"}])
    _, payload = await sent(gateway, "/v1/embeddings", model="texts", input="hi", cache_salt=SALT)
    assert payload.partition == partition_of("", SALT)


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (EmbeddingEndpoint(), b'"input": "a"'),
        (ClassifyEndpoint(), b'"input": "a"'),
        (RerankEndpoint(), b'"query": "a", "documents": ["b"]'),
        (ScoreEndpoint(), b'"text_1": "a", "text_2": "b"'),
    ],
    ids=lambda one: getattr(one, "operation", ""),
)
def test_whatever_is_made_of_a_text_its_salt_is_heard(endpoint: Any, fields: bytes) -> None:
    body = parse_body(b'{"model": "m", "cache_salt": "s", ' + fields + b"}", endpoint.body_model)
    assert endpoint.asked(body).cache_salt == "s"


async def test_a_further_attempt_is_in_the_same_partition(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(engine={"block_size": 4})
    async with sending(gateway.http.post(TEXT, json={"model": "tiny", "cache_salt": SALT} | BODIES[TEXT])) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("ab"))
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[second.request_id]
        assert (second.attempt, payload.partition, second.prefix) == (1, partition_of("", SALT), first.prefix)
        await gateway.queue.send(second, 2, ids("c"), "stop")
        await answer()


async def test_a_tenant_s_own_caches_need_no_salt_and_no_two_tenants_share_by_one(
    start_gateway: GatewayFactory,
) -> None:
    gateway = await start_gateway(keys=KEYS, tenants=TENANTS)
    keys = {one["tenant"]: one["key"] for one in KEYS}
    plain = {name: (await sent(gateway, key=key))[1].partition for name, key in keys.items()}
    assert plain == {"acme": partition_of("acme", ""), "bolt": partition_of("bolt", ""), "crux": ""}
    salted = {name: (await sent(gateway, key=key, cache_salt="s"))[1].partition for name, key in keys.items()}
    assert salted == {
        "acme": partition_of("acme", "s"),
        "bolt": partition_of("bolt", "s"),
        "crux": partition_of("", "s"),
    }
    assert len({*plain.values(), *salted.values()}) == 6


@pytest.mark.parametrize(
    ("salt", "reason"),
    [
        ("", "at least 1 character"),
        ("Zk3" * MAX_SALT_CHARACTERS, "at most 512 characters"),
        (5, "a valid string"),
        (["Zk3"], "a valid string"),
    ],
    ids=["empty", "long", "number", "list"],
)
async def test_what_is_no_salt_is_refused_and_not_repeated(
    start_gateway: GatewayFactory, salt: Any, reason: str
) -> None:
    gateway = await start_gateway()
    for path in (TEXT, "/v1/chat/completions", "/v1/responses"):
        status, error, _ = await refused(gateway, path, {"model": "tiny", "cache_salt": salt} | BODIES[path])
        assert (status, error["type"], error["param"], error["code"]) == (
            400,
            "invalid_request_error",
            "cache_salt",
            "invalid_value",
        )
        assert reason in error["message"]
        assert "Zk3" not in error["message"]
    async with gateway.http.post(
        "/v1/messages", json={"model": "tiny", "cache_salt": salt} | BODIES["/v1/messages"]
    ) as response:
        answer = await response.json()
        assert (response.status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert "cache_salt" in answer["error"]["message"]
        assert "Zk3" not in answer["error"]["message"]


async def test_no_word_of_a_salt_leaves_the_gateway(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("abc"), keys=KEYS, key="key of acme", tenants=TENANTS)
    with structlog.testing.capture_logs() as logs:
        answer = await gateway.openai.completions.create(model="tiny", prompt="x", extra_body={"cache_salt": SALT})
        submit = await gateway.queue.next_submit()
    assert logs
    told = [answer.model_dump_json(), repr(logs), generate_latest(gateway.registry).decode(), repr(encode(submit))]
    told += [repr((span.name, dict(span.attributes or {}))) for span in gateway.spans.get_finished_spans()]
    assert len(told) == 5
    assert not [one for one in told if SALT in one or partition_of("acme", SALT) in one]
    gateway.queue.answer = None
    submit, payload = await sent(gateway, key="key of acme", cache_salt=SALT)
    assert SALT.encode() not in encode(payload) + encode(submit)


async def test_requests_of_one_call_share_a_partition(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": ["a", "b"], "cache_salt": SALT}
    async with sending(gateway.http.post(TEXT, json=body)):
        submits = await asyncio.gather(gateway.queue.next_submit(), gateway.queue.next_submit())
        payloads = [gateway.queue.payloads[one.request_id] for one in submits]
    assert [one.partition for one in payloads] == [partition_of("", SALT)] * 2
