"""A constraint goes from the body to the node; what is none is refused before anything is queued."""

from __future__ import annotations

from typing import Any

import pytest

from shared.messages.requests.payload import Constraint
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying
from tests.gateway.tiny import ids

HI = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "tiny", "messages": HI},
    "/v1/completions": {"model": "tiny", "prompt": "hi"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_constraint_reaches_the_payload(start_gateway: GatewayFactory, path: str) -> None:
    gateway = await start_gateway()
    body = BODIES[path] | {"structured_outputs": {"choice": ["ab", "c"]}}
    async with sending(gateway.http.post(path, json=body)) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        await gateway.queue.send(submit, 0, ids("ab"), "stop")
        assert (await answer())["choices"][0]["finish_reason"] == "stop"
    assert payload.sampling.constraint == Constraint("choice", '["ab","c"]')


async def test_without_one_there_is_none(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = BODIES["/v1/completions"] | {"response_format": {"type": "text"}}
    async with sending(gateway.http.post("/v1/completions", json=body)):
        submit = await gateway.queue.next_submit()
        assert gateway.queue.payloads[submit.request_id].sampling.constraint is None


async def test_each_prompt_has_it(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": ["a", "b"], "structured_outputs": {"regex": "x+"}}
    async with sending(gateway.http.post("/v1/completions", json=body)):
        submits = [await gateway.queue.next_submit() for _ in range(2)]
        payloads = [gateway.queue.payloads[submit.request_id] for submit in submits]
    assert [payload.sampling.constraint for payload in payloads] == [Constraint("regex", "x+")] * 2


async def test_the_official_client_parses_an_answer(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying('{"a": 1}'))
    answer = await gateway.openai.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
    )
    assert answer.choices[0].message.content == '{"a": 1}'


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "array", "uniqueItems": True}},
                }
            },
            "response_format",
            'Unimplemented keys: ["uniqueItems"]',
        ),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs", "Expecting property name"),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs", "a schema is a JSON object"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs", "unknown name"),
    ],
)
async def test_what_is_no_language_is_refused_and_never_queued(
    start_gateway: GatewayFactory, fields: dict[str, Any], param: str, text: str
) -> None:
    gateway = await start_gateway()
    for path, body in BODIES.items():
        async with gateway.http.post(path, json=body | fields) as response:
            error = (await response.json())["error"]
        assert (response.status, error["type"], error["code"]) == (400, "invalid_request_error", "invalid_value")
        assert error["param"] == param
        assert error["message"].startswith(f"'{param}': ")
        assert text in error["message"]
    assert gateway.queue.payloads == {}
