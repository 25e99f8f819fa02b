"""Adapters at the gateway: the queue hears of their model, clients and operators of the name that was asked for."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.models.models import load_models
from shared.config.config import ClusterConfig
from shared.files.model_file import ModelFileError
from shared.messages.prefixes.prefixes import prompt_prefix
from shared.messages.requests.payload import Constraint
from shared.messages.requests.requests import Chunk, QueueLine
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import Answer, saying
from tests.gateway.tiny import ids
from tests.gateway.tool_models import MARK, answering, output_ids, tool, write_family

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
BODY = {"model": "legal", "prompt": "x" * 40}
LABELS = {"slo_class": "interactive", "tenant": "default"}
MESSAGES = [{"role": "user", "content": "hello"}]

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def models(tiny_file: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """One model with two adapters, and one without."""
    adapters = []
    for name in ("legal", "org/short"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        adapters.append({"name": name, "source": str(folder)})
    return [
        {"name": "tiny", "source": str(tiny_file), "max_model_len": 64, "adapters": adapters},
        {"name": "other", "source": str(tiny_file), "max_model_len": 32},
    ]


@pytest.fixture
def start(start_gateway: GatewayFactory, models: list[dict[str, Any]]) -> Starter:
    async def start(answer: Answer | None = None, **sections: Any) -> Gateway:
        return await start_gateway(answer, **({"models": models} | sections))

    return start


# --- what is served ---------------------------------------------------------------------------------------------------


def test_an_adapter_reads_and_writes_as_its_model_does(models: list[dict[str, Any]]) -> None:
    served = load_models(ClusterConfig.model_validate({"models": models}))
    assert list(served) == ["tiny", "legal", "org/short", "other"]
    tiny, legal = served["tiny"], served["legal"]
    assert [(one.name, one.model, one.adapter) for one in (tiny, legal)] == [
        ("tiny", "tiny", ""),
        ("legal", "tiny", "legal"),
    ]
    assert legal.base is tiny
    assert (legal.tokenizer, legal.template, legal.tool_template, legal.notation, legal.max_model_len) == (
        tiny.tokenizer,
        tiny.template,
        tiny.tool_template,
        tiny.notation,
        64,
    )


def test_all_adapters_of_a_model_share_one_copy_of_its_vocabulary(tmp_path: Path) -> None:
    spec = write_family(tmp_path, "mistral", has_control_mark=True)
    adapters = [{"name": name, "source": str(tmp_path)} for name in ("a", "b")]
    served = load_models(ClusterConfig.model_validate({"models": [spec | {"adapters": adapters}]}))
    one, other, base = (served[name].shown_token_bytes(calls=True, thoughts=True) for name in ("a", "b", "mistral"))
    assert one[MARK] == b"[TOOL_CALLS]"
    assert one is other is base


def test_what_is_missing_or_damaged_is_told_at_once_before_anything_is_read(
    models: list[dict[str, Any]], tmp_path: Path
) -> None:
    legal, short = models[0]["adapters"]
    models[0]["adapters"] = [legal | {"source": str(tmp_path / "none")}, short | {"sha256": "0" * 64}]
    models[1]["source"] = str(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError) as caught:
        load_models(ClusterConfig.model_validate({"models": models}))
    first, *lines = str(caught.value).splitlines()
    assert (first, [line.partition(": ")[0] for line in lines]) == (
        "3 problems",
        ["  - adapter 'legal'", "  - adapter 'org/short'", "  - model 'other'"],
    )


async def test_the_catalogue_has_adapters_behind_their_model_and_names_it(start: Starter) -> None:
    gateway = await start()
    async with gateway.http.get("/v1/models") as response:
        cards = (await response.json())["data"]
    assert [(card["id"], card["root"], card["parent"], card["max_model_len"]) for card in cards] == [
        ("tiny", "tiny", None, 64),
        ("legal", "legal", "tiny", 64),
        ("org/short", "org/short", "tiny", 64),
        ("other", "other", None, 32),
    ]
    async with gateway.http.get("/v1/models/org/short") as response:
        assert await response.json() == cards[2]
    assert (await gateway.openai.models.retrieve("legal")).id == "legal"


async def test_an_unknown_model_is_answered_with_all_names(start: Starter) -> None:
    status, error, _ = await refused(await start(), TEXT, {"model": "illegal", "prompt": "x"})
    assert (status, error["message"]) == (
        404,
        "the model 'illegal' does not exist; there are: tiny, legal, org/short, other",
    )


# --- what the queue hears ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "adapter"), [("tiny", ""), ("legal", "legal"), ("org/short", "org/short")])
async def test_the_queue_hears_of_the_model_and_the_node_of_the_adapter(
    start: Starter, name: str, adapter: str
) -> None:
    gateway = await start(engine={"block_size": 16})
    async with sending(gateway.http.post(TEXT, json=BODY | {"model": name})):
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
    assert (submit.model, payload.model, payload.adapter) == ("tiny", "tiny", adapter)
    assert submit.prefix == prompt_prefix(payload.prompt_token_ids, 16, adapter)
    assert (submit.prefix == prompt_prefix(payload.prompt_token_ids, 16)) == (adapter == ""), "KV of one is of no other"


async def test_a_further_attempt_is_for_the_same_adapter(start: Starter) -> None:
    gateway = await start()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("ab"))
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[second.request_id]
        assert (second.attempt, second.model, payload.model, payload.adapter) == (1, "tiny", "tiny", "legal")
        await gateway.queue.send(second, 2, ids("c"), "stop")
        assert (await answer())["choices"][0]["text"] == "abc"


async def test_waits_are_those_of_the_model(start: Starter) -> None:
    gateway = await start(slo_classes={"interactive": {"deadline_s": 20, "queue_ttl_s": 0.05}})
    await gateway.queue.report(QueueLine("tiny", "interactive", 8, 4, 41.2, 60.0))
    status, error, headers = await refused(gateway, TEXT, BODY)
    assert (status, error["code"], headers["Retry-After"]) == (429, "ttl_expired", "42")


async def test_an_adapter_whose_model_no_node_can_serve_is_refused_by_its_own_name(start: Starter) -> None:
    gateway = await start(gateway={"cold_start_ttl_s": 0.05})
    await gateway.queue.report(QueueLine("tiny", "interactive", 1, 0, math.inf, math.inf))
    status, error, _ = await refused(gateway, TEXT, BODY)
    assert (status, error["code"]) == (503, "no_endpoints")
    assert error["message"] == "no node could serve the model 'legal' for 0.05 s"


async def test_a_late_promise_of_an_adapter_is_refused_as_any_other(start: Starter) -> None:
    gateway = await start()
    asking = asyncio.create_task(refused(gateway, TEXT, BODY))
    await gateway.queue.reject(await gateway.queue.next_submit(), wait_s=31.0, retry_after_s=11.3)
    status, error, headers = await asking
    assert (status, error["code"], headers["Retry-After"]) == (429, "would_be_late", "12")
    assert gateway.metric("treadle_refused_requests_total", model="legal", **LABELS, code="would_be_late") == 1


async def test_the_queue_is_shown_by_what_nodes_hold(start: Starter) -> None:
    gateway = await start()
    await gateway.queue.report(QueueLine("tiny", "interactive", 8, 4, 41.2, 60.0))
    async with gateway.http.get("/v1/queue") as response:
        assert [entry["model"] for entry in (await response.json())["data"]] == ["tiny"]


async def test_predictions_are_judged_by_model(start: Starter) -> None:
    gateway = await start(saying("a"))
    await gateway.queue.report(QueueLine("tiny", "interactive", 0, 0, 0.0, 0.0))
    await gateway.openai.completions.create(model="legal", prompt="x")
    kind = {"model": "tiny", "slo_class": "interactive"}
    assert gateway.metric("treadle_queue_wait_error_seconds_count", **kind) == 1


# --- what clients and operators see of a request ----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "asked"), [(TEXT, {"prompt": "x"}), (CHAT, {"messages": MESSAGES})])
async def test_answers_carry_the_name_that_was_asked_for(
    start: Starter, path: str, asked: dict[str, Any], stream: bool
) -> None:
    gateway = await start(saying("abc"))
    async with gateway.http.post(path, json={"model": "legal", "stream": stream, **asked}) as response:
        assert response.status == 200
        text = await response.text()
    parts = [line.removeprefix("data: ") for line in text.splitlines() if line] if stream else [text]
    answers = [json.loads(part) for part in parts if part != "[DONE]"]
    assert {answer["model"] for answer in answers} == {"legal"}


async def test_metrics_log_and_span_of_a_request_have_the_name_that_was_asked_for(start: Starter) -> None:
    gateway = await start(saying("abc"))
    with structlog.testing.capture_logs() as logs:
        await gateway.openai.completions.create(model="legal", prompt="x")
    assert [event["model"] for event in logs if event["event"] == "request_finished"] == ["legal"]
    assert gateway.metric("treadle_requests_total", model="legal", **LABELS, outcome="ok") == 1
    assert gateway.metric("treadle_ttft_seconds_count", model="legal", **LABELS) == 1
    assert gateway.metric("treadle_requests_total", model="tiny", **LABELS, outcome="ok") == 0
    (span,) = gateway.spans.get_finished_spans()
    assert (span.name, dict(span.attributes or {})["gen_ai.request.model"]) == ("text_completion legal", "legal")


async def test_a_failure_is_logged_with_the_name_that_was_asked_for(start: Starter) -> None:
    gateway = await start(lambda one: [Chunk(one.request_id, 0, 0, [], "error", "broken", is_last=True)])
    with structlog.testing.capture_logs() as logs:
        async with gateway.http.post(TEXT, json=BODY) as response:
            assert response.status == 500
    assert [event["model"] for event in logs if event["event"] == "generation_failed"] == ["legal"]


# --- what works as for the model --------------------------------------------------------------------------------------


async def test_tokens_are_those_of_the_model(start: Starter, models: list[dict[str, Any]]) -> None:
    gateway = await start(models=models[:1])
    answers = []
    for body in ({"model": "legal"}, {"model": "tiny"}, {}):  # one model, so that none need be named
        async with gateway.http.post("/tokenize", json={"messages": MESSAGES, **body}) as response:
            assert response.status == 200
            answers.append(await response.json())
    assert answers[0] == answers[1] == answers[2]
    async with gateway.http.post("/detokenize", json={"model": "legal", "tokens": ids("hello")}) as response:
        assert await response.json() == {"prompt": "hello"}


async def test_of_several_models_one_has_to_be_named(start: Starter) -> None:
    status, error, _ = await refused(await start(), "/tokenize", {"prompt": "x"})
    assert (status, error["message"]) == (400, "'model' is missing; there are: tiny, legal, org/short, other")


async def test_its_output_is_held_to_a_grammar(start: Starter) -> None:
    gateway = await start()
    async with sending(gateway.http.post(TEXT, json=BODY | {"structured_outputs": {"regex": "[0-9]+"}})):
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
    assert (payload.adapter, payload.sampling.constraint) == ("legal", Constraint("regex", "[0-9]+"))


async def test_it_calls_functions_in_its_model_s_notation(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    spec = write_family(tmp_path, "mistral", has_control_mark=True)
    spec["adapters"] = [{"name": "legal", "source": str(tmp_path)}]
    call = '[TOOL_CALLS][{"name": "stop", "arguments": {}}]'
    gateway = await start_gateway(answering(output_ids(call, "[TOOL_CALLS]")), models=[spec])
    body: dict[str, Any] = {"model": "legal", "messages": MESSAGES, "tools": [tool("stop")]}
    answer = await gateway.openai.chat.completions.create(**body)
    (found,) = answer.choices[0].message.tool_calls or []
    assert (answer.model, found.function.name) == ("legal", "stop")
