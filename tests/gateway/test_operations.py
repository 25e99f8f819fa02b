"""What operators see: health, metrics, logs, traces, the catalogue and the API's document."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest
import structlog

from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying
from tests.gateway.tiny import ids

LABELS = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def test_models(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    assert [model.id async for model in gateway.openai.models.list()] == ["tiny", "org/tiny-b", "base"]
    assert (await gateway.openai.models.retrieve("tiny")).owned_by == "treadle"
    async with gateway.http.get("/v1/models/org/tiny-b") as response:
        assert (await response.json())["max_model_len"] == 32
    with pytest.raises(openai.NotFoundError):
        await gateway.openai.models.retrieve("gpt")


async def test_health_needs_no_key_and_readiness_follows_the_queue(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "k", "tenant": "acme"}])
    for path in ("/healthz", "/readyz", "/openapi.json"):
        async with gateway.http.get(path) as response:
            assert response.status == 200
    gateway.state["not_ready"] = "redis is away"
    async with gateway.http.get("/readyz") as response:
        assert (response.status, await response.text()) == (503, "redis is away\n")


async def test_metrics_and_status_are_not_for_clients(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    for path in ("/metrics", "/status"):
        async with gateway.http.get(path) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not_found"


async def test_a_kept_promise_is_counted_with_its_times(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("abc"))
    await gateway.openai.completions.create(model="tiny", prompt="x")
    assert gateway.metric("treadle_requests_total", **LABELS, outcome="ok") == 1
    assert gateway.metric("treadle_slo_attained_total", **LABELS) == 1
    for name in ("ttft", "tpot", "e2e"):
        assert gateway.metric(f"treadle_{name}_seconds_count", **LABELS) == 1
    assert gateway.metric("treadle_inflight_requests") == 0


async def test_a_promise_without_answer_is_missed(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(slo_classes={"interactive": {"queue_ttl_s": 0.02}})
    with pytest.raises(openai.RateLimitError):
        await gateway.openai.completions.create(model="tiny", prompt="x")
    assert gateway.metric("treadle_requests_total", **LABELS, outcome="ttl-expired") == 1
    assert gateway.metric("treadle_slo_missed_total", **LABELS) == 1


async def test_what_is_held_is_shown(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post("/v1/completions", json={"model": "tiny", "prompt": "x"})):
        await gateway.queue.next_submit()
        assert gateway.metric("treadle_inflight_requests") == 1
    await gateway.queue.next_cancel()


async def test_what_is_refused_is_counted_as_rejected(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    with pytest.raises(openai.NotFoundError):
        await gateway.openai.completions.create(model="gpt", prompt="x")
    unknown = {"model": "unknown", "slo_class": "unknown", "tenant": "default"}
    assert gateway.metric("treadle_requests_total", **unknown, outcome="rejected") == 1


async def test_one_log_event_a_request_and_no_word_of_its_text(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("secretive"), keys=[{"key": "keysecret", "tenant": "acme"}], key="keysecret")
    with structlog.testing.capture_logs() as logs:
        await gateway.openai.completions.create(model="tiny", prompt="my secret")
    (event,) = logs
    assert event["event"] == "request_finished"
    assert (event["model"], event["tenant"], event["outcome"]) == ("tiny", "acme", "ok")
    assert (event["prompt_tokens"], event["output_tokens"]) == (9, 10)
    assert event["ttft_s"] <= event["e2e_s"]
    assert "secret" not in repr(logs)


async def test_a_span_joins_the_clients_trace_and_the_queues(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    request = gateway.http.post(
        "/v1/completions", json={"model": "tiny", "prompt": "x"}, headers={"traceparent": TRACEPARENT}
    )
    async with sending(request) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        await gateway.queue.send(submit, 0, ids("ab"), "stop")
        await answer()
    (span,) = gateway.spans.get_finished_spans()
    assert (span.name, span.kind.name) == ("text_completion tiny", "SERVER")
    assert span.context is not None
    assert submit.traceparent == payload.traceparent == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.operation.name"] == "text_completion"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (1, 2)
    assert "gen_ai.server.time_to_first_token" in attributes


async def test_a_request_that_loses_its_node_is_counted_and_its_span_says_when(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "xyz"}
    async with sending(gateway.http.post("/v1/completions", json=body)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("ab"))
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.send(second, 2, ids("c"), "stop")
        await answer()
    assert gateway.metric("treadle_prompt_tokens_total", **LABELS) == 3
    assert gateway.metric("treadle_output_tokens_total", **LABELS) == 3
    assert gateway.metric("treadle_resubmitted_requests_total", **LABELS) == 1
    (span,) = gateway.spans.get_finished_spans()
    (event,) = span.events
    assert (event.name, dict(event.attributes or {})) == (
        "resubmitted",
        {"treadle.request_id": first.request_id, "treadle.attempt": 1, "treadle.gave_way": False},
    )
    assert second.traceparent == first.traceparent, "both attempts hang below the same span"


async def test_an_error_has_a_type_and_a_clients_fault_is_none(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(slo_classes={"interactive": {"queue_ttl_s": 0.02}})
    with pytest.raises(openai.RateLimitError):
        await gateway.openai.completions.create(model="tiny", prompt="x")
    with pytest.raises(openai.NotFoundError):
        await gateway.openai.completions.create(model="gpt", prompt="x")
    late, unknown = gateway.spans.get_finished_spans()
    assert (late.status.status_code.name, dict(late.attributes or {})["error.type"]) == ("ERROR", "ttl_expired")
    assert unknown.status.status_code.name == "UNSET"
    assert "error.type" not in dict(unknown.attributes or {})


async def test_a_wild_traceparent_is_ignored(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    await gateway.openai.completions.create(model="tiny", prompt="x", extra_headers={"traceparent": "wild"})
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-9]", (await gateway.queue.next_submit()).traceparent)


async def test_the_document_asks_for_a_key_where_there_are_keys(start_gateway: GatewayFactory) -> None:
    either: list[Any] = [{"key": []}, {"header": []}]
    cases: list[tuple[list[Any], list[Any]]] = [([], []), ([{"key": "good", "tenant": "acme"}], either)]
    for keys, security in cases:
        gateway = await start_gateway(keys=keys)
        async with gateway.http.get("/openapi.json") as response:
            document = await response.json()
        assert document["security"] == security
        assert ("securitySchemes" in document["components"]) == bool(keys)


async def test_the_document_is_complete(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/openapi.json") as response:
        document = await response.json()
    assert set(document["paths"]) == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/v2/rerank",
        "/rerank",
        "/v1/score",
        "/score",
        "/v1/classify",
        "/classify",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/responses/{response}",
        "/v1/responses/{response}/cancel",
        "/v1/responses/{response}/input_items",
        "/v1/conversations",
        "/v1/conversations/{conversation}",
        "/v1/conversations/{conversation}/items",
        "/v1/conversations/{conversation}/items/{item}",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/queue",
        "/tokenize",
        "/detokenize",
        "/health",
        "/healthz",
        "/readyz",
        "/version",
    }
    schemas = document["components"]["schemas"]
    references = set(re.findall(r"#/components/schemas/(\w+)", repr(document)))
    assert references <= set(schemas)
    assert schemas["CompletionRequest"]["properties"]["temperature"]["anyOf"][0]["maximum"] == 2
    assert "string" in repr(schemas["ChatCompletionRequest"]["properties"]["slo"])


async def test_the_document_names_the_kinds_of_what_a_conversation_is_made_of(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/openapi.json") as response:
        schemas = (await response.json())["components"]["schemas"]

    def kinds(schema: str, field: str) -> list[str]:
        """What a list may have, where it may be a text too."""
        value = schemas[schema]["properties"][field]
        items = value["items"] if "items" in value else value["anyOf"][1]["items"]
        return [one["$ref"].rpartition("/")[2] for one in items["anyOf"]]

    assert kinds("ResponsesRequest", "input") == ["InputMessage", "InputCall", "InputCallOutput", "InputReasoning"]
    assert kinds("InputMessage", "content") == ["ItemTextPart", "RefusalPart", "InputImagePart"]
    assert kinds("MessagesRequest", "messages") == ["UserTurn", "AssistantTurn"]
    assert kinds("ChatMessage", "content") == ["TextPart", "ImagePart"]
    assert kinds("UserTurn", "content") == ["TextBlock", "ImageBlock", "ToolResultBlock"]
