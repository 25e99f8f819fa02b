"""Re-ranking and scores over a real socket: answers, what nodes are asked, cuts, refusals."""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.answers.relevance import logistic, relevance
from gateway.openai.errors.errors import ApiError
from gateway.openai.pooled.scores import MAX_DOCUMENTS
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import Answer, saying
from tests.gateway.tiny import END, START, ids, write_model

Starter = Callable[..., Awaitable[Gateway]]
PROMPT = "<|im_start|>{instruction}:{query}?{document}<|im_end|>ok"


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model that scores, one that embeds, and one that generates."""

    async def start(answer: Answer | None = None, **sections: Any) -> Gateway:
        judge = write_model(tmp_path / "judge.gguf", template=None)
        score = {"prompt": PROMPT, "instruction": "x"}
        models = [
            {"name": "judge", "source": str(judge), "max_model_len": 32, "task": "score", "score": score}
            | {"aliases": ["rerank-v3"]},
            {"name": "texts", "source": str(judge), "task": "embed"},
            {"name": "chats", "source": str(write_model(tmp_path / "chats.gguf"))},
        ]
        return await start_gateway(answer, models=models, **sections)

    return start


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def prompt(query: str, document: str, instruction: str = "x") -> list[int]:
    return [START, *ids(f"{instruction}:{query}?{document}"), END, *ids("ok")]


def judged(payload: Payload) -> list[Chunk]:
    """A node's answer: a document of n bytes is so likely to fit as the logit n says."""
    length = len(payload.prompt_token_ids) - len(prompt("q", ""))
    names: dict[str, Any] = {"is_last": True, "cached_tokens": 2, "embedding": floats(1.0, 1.0 + length)}
    return [Chunk(payload.request_id, payload.attempt, 0, [], "stop", **names)]


async def posted(gateway: Gateway, body: Any, path: str = "/v1/rerank") -> tuple[int, Any]:
    async with gateway.http.post(path, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_the_best_documents_come_first(start: Starter, path: str) -> None:
    gateway = await start(judged)
    body = {"model": "rerank-v3", "query": "q", "documents": ["a", {"text": "bcd"}["text"], "", "e"]}
    status, answer = await posted(gateway, body, path)
    assert status == 200
    assert answer.pop("id").startswith("rerank-")
    num_tokens = 4 * len(prompt("q", "")) + 5
    assert answer == {
        "model": "rerank-v3",
        "results": [
            {"index": 1, "relevance_score": 0.9525741268224334},  # 1 / (1 + e**-3)
            {"index": 0, "relevance_score": 0.7310585786300049},  # of equals, the first
            {"index": 3, "relevance_score": 0.7310585786300049},
            {"index": 2, "relevance_score": 0.5},
        ],
        "usage": {
            "prompt_tokens": num_tokens,
            "total_tokens": num_tokens,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


async def test_so_many_as_are_asked_for_with_their_texts(start: Starter) -> None:
    gateway = await start(judged)
    body = {"model": "judge", "query": "q", "documents": [{"text": "a"}, {"text": "bcd"}], "top_n": 1}
    _, answer = await posted(gateway, body | {"return_documents": True})
    assert answer["results"] == [{"index": 1, "relevance_score": 0.9525741268224334, "document": {"text": "bcd"}}]
    assert len((await posted(gateway, body | {"top_n": 9}))[1]["results"]) == 2


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
async def test_one_query_or_pairs(start: Starter, path: str) -> None:
    gateway = await start(judged)
    status, answer = await posted(gateway, {"model": "judge", "text_1": "q", "text_2": ["", "bcd"]}, path)
    assert status == 200
    assert answer.pop("id").startswith("score-")
    assert answer.pop("created") > 0
    num_tokens = 2 * len(prompt("q", "")) + 3
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "prompt_tokens_details": {"cached_tokens": 4}}
    data = [
        {"index": 0, "object": "score", "score": 0.5},
        {"index": 1, "object": "score", "score": 0.9525741268224334},
    ]
    assert answer == {"object": "list", "model": "judge", "data": data, "usage": usage}
    _, alone = await posted(gateway, {"model": "judge", "text_1": "q", "text_2": "bcd"}, path)
    assert [one["score"] for one in alone["data"]] == [0.9525741268224334]


async def test_pairs_are_of_texts_side_by_side(start: Starter) -> None:
    gateway = await start()
    body = {"model": "judge", "text_1": ["p", "q"], "text_2": ["a", "b"]}
    async with sending(gateway.http.post("/v1/score", json=body)) as answer:
        submits = [await gateway.queue.next_submit() for _ in range(2)]
        found = [gateway.queue.payloads[one.request_id].prompt_token_ids for one in submits]
        assert found == [prompt("p", "a"), prompt("q", "b")]
        for submit in submits:
            await gateway.queue.send(submit, 0, [], "stop", embedding=floats(2.0))  # a classifier's one label
        assert [one["score"] for one in (await answer())["data"]] == [logistic(2.0)] * 2


async def test_what_a_node_is_asked_for(start: Starter) -> None:
    gateway = await start()
    body = {"model": "judge", "query": "q", "documents": ["a"], "slo": {"ttft_s": 2.0}, "instruction": "y"}
    async with sending(gateway.http.post("/v1/rerank", json=body)) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        assert payload.prompt_token_ids == prompt("q", "a", "y")
        assert (payload.model, payload.sampling.is_embedding, payload.sampling.max_tokens) == ("judge", True, 1)
        assert (submit.max_tokens, submit.needs, submit.slo.ttft_s) == (1, "", 2.0)
        await gateway.queue.send(submit, 0, [], "stop", embedding=floats(0.0, 0.0))
        assert (await answer())["results"] == [{"index": 0, "relevance_score": 0.5}]
    assert gateway.queue.payloads == {}


async def test_clients_write_no_control_tokens_nor_places(start: Starter) -> None:
    gateway = await start()
    body = {"model": "judge", "query": "{document}", "documents": ["<|im_end|>"]}
    async with sending(gateway.http.post("/v1/rerank", json=body)):
        submit = await gateway.queue.next_submit()
        found = gateway.queue.payloads[submit.request_id].prompt_token_ids
        assert found == prompt("{document}", "<|im_end|>")


@pytest.mark.parametrize(
    ("asked", "document"),
    [
        ({"max_tokens_per_doc": 3}, "abc"),
        ({"max_tokens_per_doc": 40, "truncate_prompt_tokens": 12}, "abcd"),  # beside the 8 of form and query
        ({"max_tokens_per_doc": 3, "truncate_prompt_tokens": 12}, "abc"),
        ({"truncate_prompt_tokens": 12}, "abcd"),
        ({"truncate_prompt_tokens": 8}, ""),
        ({"truncate_prompt_tokens": -1}, "abcdefghijklmnopqrstuvw"),  # 31 tokens, and one for the answer
        ({"truncate_prompt_tokens": 1000}, "abcdefghijklmnopqrstuvw"),
    ],
)
async def test_a_document_is_cut_and_the_form_is_not(start: Starter, asked: dict[str, Any], document: str) -> None:
    gateway = await start()
    body = {"model": "judge", "query": "q", "documents": ["abcdefghijklmnopqrstuvwxyz" * 100]}
    async with sending(gateway.http.post("/v1/rerank", json=body | asked)):
        submit = await gateway.queue.next_submit()
        assert gateway.queue.payloads[submit.request_id].prompt_token_ids == prompt("q", document)


async def test_many_documents_come_as_a_few_do(start: Starter) -> None:
    gateway = await start(judged)
    documents = ["a" * (number % 7) for number in range(200)]
    _, answer = await posted(gateway, {"model": "judge", "query": "q", "documents": documents})
    order = sorted(range(200), key=lambda index: (-(index % 7), index))
    assert [one["index"] for one in answer["results"]] == order


async def test_a_document_that_was_lost_is_tried_again(start: Starter) -> None:
    gateway = await start()
    body = {"model": "judge", "query": "q", "documents": ["a"]}
    async with sending(gateway.http.post("/v1/rerank", json=body)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, [], "stop", embedding=floats(5.0))  # late: of another attempt
        await gateway.queue.send(second, 0, [], "stop", embedding=floats(0.0))
        assert (await answer())["results"] == [{"index": 0, "relevance_score": 0.5}]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"query": ""}, "documents", "the query is empty"),
        ({"documents": []}, "documents", "at least one"),
        ({"documents": "a"}, "documents", "documents are a list of strings, or of objects with a text"),
        ({"documents": [1]}, "documents", "a document is a string, or an object with a text and nothing else"),
        ({"documents": [{"text": "a", "title": "b"}]}, "documents", "with a text and nothing else"),
        ({"documents": ["a"] * (MAX_DOCUMENTS + 1)}, "documents", "a request has at most 2048 documents, not 2049"),
        ({"documents": ["a" * 32]}, "documents", "the model's context length is 32 tokens"),
        ({"documents": ["a" * 10_000]}, "documents", "which hold"),
        ({"query": "q" * 40, "truncate_prompt_tokens": -1}, "truncate_prompt_tokens", "has 47 tokens, and 31 are left"),
        ({"truncate_prompt_tokens": 7}, "truncate_prompt_tokens", "the prompt has 8 tokens, and 7 are left for it"),
        ({"query": "q" * 4000, "documents": ["a"] * 2000}, "documents", "which hold"),
        ({"top_n": 0}, "top_n", "greater than or equal to 1"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc", "greater than or equal to 1"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "a prompt has a token at least"),
        ({"rank_fields": ["text"]}, "rank_fields", "rank_fields"),
        ({"model": "chats"}, "model", "the model 'chats' gives text and no scores; these do: judge, rerank-v3"),
        ({"model": "texts"}, "model", "the model 'texts' gives embeddings and no scores; these do: judge, rerank-v3"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(
    start: Starter, body: dict[str, Any], param: str, message: str
) -> None:
    gateway = await start(judged)
    status, answer = await posted(gateway, {"model": "judge", "query": "q", "documents": ["a"]} | body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert message in answer["error"]["message"]


async def test_a_query_that_is_read_too_often_is_refused(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    judge = write_model(tmp_path / "judge.gguf", context_length=8192)
    models = [{"name": "judge", "source": str(judge), "task": "score", "score": {"prompt": PROMPT}}]
    gateway = await start_gateway(judged, models=models)
    body = {"model": "judge", "query": "q" * 4000, "documents": ["a"] * 1100}
    status, answer = await posted(gateway, body)
    assert status == 400
    assert answer["error"]["message"].startswith("the query is read with each document, 4481400 characters in all")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text_1": ["a", "b"], "text_2": ["c"]}, "there are 2 queries for 1 documents; send one, or as many"),
        ({"text_1": [], "text_2": ["c"]}, "it is a string or a list of strings; at least one"),
        ({"text_1": "a", "text_2": [1]}, "it is a string or a list of strings; at least one"),
        ({"text_1": "a", "text_2": ["b"] * 2049}, "a request has at most 2048 texts, not 2049"),
    ],
)
async def test_texts_that_are_no_pairs_are_refused(start: Starter, body: dict[str, Any], message: str) -> None:
    gateway = await start(judged)
    status, answer = await posted(gateway, {"model": "judge"} | body, "/v1/score")
    assert status == 400
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_a_model_that_scores_answers_nothing_else(start: Starter, path: str, body: dict[str, Any]) -> None:
    gateway = await start(saying("hello"))
    status, answer = await posted(gateway, {"model": "judge"} | body, path)
    assert status == 400
    wanted = "the model 'judge' gives scores and no text: ask for them at /v1/rerank or /v1/score"
    assert answer["error"]["message"] == wanted
    _, answer = await posted(gateway, {"model": "judge", "input": "a"}, "/v1/embeddings")
    assert answer["error"]["message"] == "the model 'judge' gives scores and no embeddings; these do: texts"


async def test_an_instruction_without_a_place_is_refused(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    judge = write_model(tmp_path / "judge.gguf")
    score = {"prompt": "{query}{document}"}
    models = [{"name": "judge", "source": str(judge), "task": "score", "score": score}]
    gateway = await start_gateway(judged, models=models)
    body = {"model": "judge", "query": "q", "documents": ["a"], "instruction": "y"}
    status, answer = await posted(gateway, body)
    assert (status, answer["error"]["param"]) == (400, "instruction")


@pytest.mark.parametrize("embedding", [floats(1.0, 2.0, 3.0), b"abc", b""])
async def test_what_no_node_may_send_ends_the_request(start: Starter, embedding: bytes) -> None:
    def answer(payload: Payload) -> list[Chunk]:
        return [Chunk(payload.request_id, payload.attempt, 0, [], "stop", is_last=True, embedding=embedding)]

    gateway = await start(answer)
    status, told = await posted(gateway, {"model": "judge", "query": "q", "documents": ["a"]})
    assert (status, told["error"]["code"]) == (500, "generation_failed")


async def test_keys_are_asked_for_at_all_paths(start: Starter) -> None:
    gateway = await start(judged, keys=[{"key": "secret", "tenant": "a"}])
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"):
        status, answer = await posted(gateway, {}, path)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


async def test_the_list_of_models_says_what_each_is_for(start: Starter) -> None:
    gateway = await start()
    async with gateway.http.get("/v1/models") as response:
        cards = (await response.json())["data"]
    tasks = {"judge": "score", "rerank-v3": "score", "texts": "embed", "chats": "generate"}
    assert {card["id"]: card["task"] for card in cards} == tasks


async def test_each_score_keeps_its_promise_as_a_first_token_does(start: Starter) -> None:
    gateway = await start(judged)
    await posted(gateway, {"model": "judge", "query": "q", "documents": ["a", "b"]})
    labels = {"model": "judge", "slo_class": "interactive", "tenant": "default"}
    assert gateway.metric("treadle_output_tokens_total", **labels) == 2
    assert gateway.metric("treadle_prompt_tokens_total", **labels) == 2 * len(prompt("q", "a"))


def test_a_score_by_hand() -> None:
    assert relevance(floats(0.0)) == 0.5
    assert relevance(floats(-1.0, 2.0)) == 1 / (1 + math.exp(-3.0))
    assert relevance(floats(1e30)) == 1.0
    assert relevance(floats(-1e30)) == 0.0
    assert logistic(-2.0) == pytest.approx(1 - logistic(2.0))
    assert relevance(floats(-math.inf)) == 0.0
    with pytest.raises(ApiError, match="3 logits are no score"):
        relevance(floats(1.0, 2.0, 3.0))
    for logits in (floats(math.nan), floats(math.inf, math.inf)):
        with pytest.raises(ApiError, match="its logits are no numbers"):
            relevance(logits)
