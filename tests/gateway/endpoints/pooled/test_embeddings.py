"""Embeddings over a real socket, by OpenAI's own client: answers, what nodes are asked, refusals."""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, InternalServerError
from openai.types import CreateEmbeddingResponse

from gateway.answers.unit_vector import base64_of, unit_vector
from gateway.openai.pooled.embeddings import MAX_INPUTS
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import Answer, saying
from tests.gateway.tiny import END, START, ids, write_model

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model that embeds, whose texts end with EOS, and one that generates."""

    async def start(answer: Answer | None = None, **sections: Any) -> Gateway:
        texts = write_model(tmp_path / "texts.gguf", template=None, add_eos=True)
        chats = write_model(tmp_path / "chats.gguf")
        models = [
            {"name": "texts", "source": str(texts), "max_model_len": 16, "task": "embed", "aliases": ["ada"]},
            {"name": "chats", "source": str(chats)},
        ]
        return await start_gateway(answer, models=models, **sections)

    return start


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def embedding(*numbers: float, cached_tokens: int | None = None) -> Answer:
    """Nodes that answer every request with these."""

    def answer(payload: Payload) -> list[Chunk]:
        names: dict[str, Any] = {"is_last": True, "cached_tokens": cached_tokens, "embedding": floats(*numbers)}
        return [Chunk(payload.request_id, payload.attempt, 0, [], "stop", **names)]

    return answer


async def asked(gateway: Gateway, **fields: Any) -> CreateEmbeddingResponse:
    body: dict[str, Any] = {"model": "texts", "input": "hi"} | fields
    answer: CreateEmbeddingResponse = await gateway.openai.embeddings.create(**body)
    return answer


async def posted(gateway: Gateway, body: Any) -> tuple[int, Any]:
    async with gateway.http.post("/v1/embeddings", json=body) as response:
        return response.status, await response.json()


async def test_the_answer_is_of_length_1(start: Starter) -> None:
    gateway = await start(embedding(3.0, 4.0, cached_tokens=2))
    assert await posted(gateway, {"model": "texts", "input": "hi"}) == (
        200,
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}],
            "model": "texts",
            "usage": {"prompt_tokens": 3, "total_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
        },
    )


async def test_openais_client_reads_numbers_and_base64(start: Starter) -> None:
    gateway = await start(embedding(3.0, 4.0))
    whole = await asked(gateway)  # it asks for base64 by itself
    assert whole.data[0].embedding == pytest.approx([0.6, 0.8])
    as_numbers = await asked(gateway, encoding_format="float")
    assert as_numbers.data[0].embedding == [0.6, 0.8]


async def test_what_a_node_is_asked_for(start: Starter) -> None:
    gateway = await start()
    body = {"model": "ada", "input": "hi", "slo": {"ttft_s": 2.0}}
    async with sending(gateway.http.post("/v1/embeddings", json=body)) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        assert payload.prompt_token_ids == [*ids("hi"), END]
        assert (payload.model, payload.sampling.is_embedding, payload.sampling.max_tokens) == ("texts", True, 1)
        assert (submit.prompt_tokens, submit.max_tokens, submit.needs) == (3, 1, "")
        assert submit.slo.ttft_s == 2.0
        await gateway.queue.send(submit, 0, [], "stop", embedding=floats(1.0))
        assert (await answer())["model"] == "ada"
        assert await gateway.queue.next_finish() == submit.request_id
    assert gateway.queue.payloads == {}


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        (["a", "b"], [[97, END], [98, END]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
        ([97, 98], [[97, 98]]),
        (["<|im_start|>a<|im_end|>"], [[START, 97, END]]),  # who writes EOS gets no second one
    ],
)
async def test_each_input_is_a_request_of_its_own(start: Starter, given: Any, prompts: list[list[int]]) -> None:
    gateway = await start()
    async with sending(gateway.http.post("/v1/embeddings", json={"model": "texts", "input": given})) as answer:
        submits = [await gateway.queue.next_submit() for _ in prompts]
        assert [gateway.queue.payloads[one.request_id].prompt_token_ids for one in submits] == prompts
        for number, submit in reversed(list(enumerate(submits))):  # the last is done first
            await gateway.queue.send(submit, 0, [], "stop", embedding=floats(1.0, float(number)))
        whole = await answer()
    lengths = [math.hypot(1.0, number) for number in range(len(prompts))]
    assert [(one["index"], one["embedding"]) for one in whole["data"]] == [
        (number, [1.0 / length, number / length]) for number, length in enumerate(lengths)
    ]
    assert whole["usage"]["prompt_tokens"] == sum(map(len, prompts))


async def test_dimensions_are_the_first_ones_of_length_1_again(start: Starter) -> None:
    gateway = await start(embedding(3.0, 4.0, 12.0))
    assert (await asked(gateway, dimensions=2, encoding_format="float")).data[0].embedding == [0.6, 0.8]
    with pytest.raises(BadRequestError, match="the model's embeddings have 3 dimensions, not 4"):
        await asked(gateway, dimensions=4)


async def test_many_embeddings_come_as_a_few_do(start: Starter) -> None:
    numbers = [float(number) for number in range(1, 1025)]
    gateway = await start(embedding(*numbers))
    whole = await asked(gateway, input=["a"] * 40, encoding_format="float")
    assert [one.embedding for one in whole.data] == [unit_vector(floats(*numbers))] * 40


async def test_a_request_that_was_lost_is_tried_again(start: Starter) -> None:
    gateway = await start()
    async with sending(gateway.http.post("/v1/embeddings", json={"model": "texts", "input": "hi"})) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        assert second.attempt == 1
        await gateway.queue.send(first, 0, [], "stop", embedding=floats(5.0))  # late: of another attempt
        await gateway.queue.send(second, 0, [], "stop", embedding=floats(2.0))
        assert (await answer())["data"][0]["embedding"] == [1.0]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"input": ""}, "input", "the input is empty"),
        ({"input": []}, "input", "the input is empty"),
        ({"input": ["a", ""]}, "input", "the input is empty"),
        ({"input": "a" * 16}, "input", "the model's context length is 16 tokens"),
        ({"input": [97] * 16}, "input", "the model's context length is 16 tokens"),
        ({"input": [999]}, "input", "token ids are numbers from 0 to"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input", "a request has at most 2048 inputs, not 2049"),
        ({"input": ["a", [1]]}, "input", "an input is a string or a list of token ids; several are all of the same"),
        ({"input": "a", "dimensions": 0}, "dimensions", "greater than or equal to 1"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "temperature": 1.0}, "temperature", "temperature"),
        ({"input": "a", "model": "chats"}, "model", "the model 'chats' gives text and no embeddings; these do: texts"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(
    start: Starter, body: dict[str, Any], param: str, message: str
) -> None:
    gateway = await start(embedding(1.0))
    status, answer = await posted(gateway, {"model": "texts"} | body)
    assert (status, answer["error"]["param"]) == (400, param)
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
async def test_a_model_that_embeds_answers_nothing_else(start: Starter, path: str, body: dict[str, Any]) -> None:
    gateway = await start(saying("hello"))
    async with gateway.http.post(path, json={"model": "texts"} | body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["message"] == "the model 'texts' gives embeddings and no text: ask for them at /v1/embeddings"


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedding": b"abc"},  # not whole numbers
        {"embedding": b""},
        {"embedding": floats(1.0), "token_ids": [5]},
        {"embedding": floats(1.0), "finish_reason": "length"},
        {"embedding": floats(1.0), "is_last": False},
    ],
)
async def test_what_no_node_may_send_ends_the_request(start: Starter, wrong: dict[str, Any]) -> None:
    def answer(payload: Payload) -> list[Chunk]:
        fields: dict[str, Any] = {"index": 0, "token_ids": [], "finish_reason": "stop", "is_last": True} | wrong
        return [Chunk(payload.request_id, payload.attempt, **fields)]

    gateway = await start(answer)
    with pytest.raises(InternalServerError, match="generation failed on the node"):
        await asked(gateway)


async def test_an_embedding_ends_no_text(start: Starter) -> None:
    gateway = await start(embedding(1.0))
    with pytest.raises(InternalServerError, match="generation failed on the node"):
        await gateway.openai.completions.create(model="chats", prompt="hi")


async def test_the_list_of_models_says_what_each_is_for(start: Starter) -> None:
    gateway = await start()
    async with gateway.http.get("/v1/models") as response:
        cards = (await response.json())["data"]
    assert {card["id"]: card["task"] for card in cards} == {"texts": "embed", "ada": "embed", "chats": "generate"}


async def test_an_embedding_keeps_its_promise_as_a_first_token_does(start: Starter) -> None:
    gateway = await start(embedding(1.0))
    await asked(gateway)
    labels = {"model": "texts", "slo_class": "interactive", "tenant": "default"}
    assert gateway.metric("treadle_slo_attained_total", **labels) == 1
    assert gateway.metric("treadle_output_tokens_total", **labels) == 1
    assert gateway.metric("treadle_prompt_tokens_total", **labels) == 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_an_embedding_of_no_numbers_is_a_failure(start: Starter, number: float) -> None:
    gateway = await start(embedding(1.0, number))
    with pytest.raises(InternalServerError) as failure:
        await asked(gateway)
    assert failure.value.code == "generation_failed"


def test_a_vector_by_hand() -> None:
    assert unit_vector(floats(0.0, 0.0)) == [0.0, 0.0]
    assert unit_vector(floats(-2.0)) == [-1.0]
    assert base64_of([1.0, -2.0]) == "AACAPwAAAMA="  # 3f800000 c0000000, the lowest byte first
