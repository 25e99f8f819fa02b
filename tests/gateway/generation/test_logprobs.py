"""Logprobs in OpenAI's two shapes, whole and streamed, as the official client reads them."""

from __future__ import annotations

import math
from typing import Any

from openai.types.chat import ChatCompletionMessageParam, ChatCompletionTokenLogprob

from gateway.generation.logprobs import LogprobWriter
from gateway.models.models import ServedModel
from gateway.openai.answers.delta import ScoredToken
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying_each
from tests.gateway.tiny import END, HELLO, ids

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def written(scored: ChatCompletionTokenLogprob) -> tuple[str, float, list[int] | None, list[tuple[str, float]]]:
    return scored.token, scored.logprob, scored.bytes, [(top.token, top.logprob) for top in scored.top_logprobs]


async def test_chat(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("bé"))
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI, logprobs=True, top_logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.refusal is None
    top = [("a", -0.5), ("b", -1.5)]
    assert [written(one) for one in logprobs.content or []] == [
        ("b", -98.0, [98], top),
        ("bytes:\\xc3", -195.0, [0xC3], top),
        ("bytes:\\xa9", -169.0, [0xA9], top),
        ("<|im_end|>", -256.0, None, top),
    ]


async def test_chat_without_top(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("b"))
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI, logprobs=True)
    assert answer.choices[0].logprobs is not None
    assert [written(one)[3] for one in answer.choices[0].logprobs.content or []] == [[], []]
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI)
    assert answer.choices[0].logprobs is None


async def test_a_chat_stream_of_two_choices_has_those_of_its_text(start_gateway: GatewayFactory) -> None:
    texts = ["a 🧵 of", "繊維!"]
    gateway = await start_gateway(saying_each(*texts, size=2))
    stream = await gateway.openai.chat.completions.create(
        model="tiny", messages=HI, n=2, logprobs=True, top_logprobs=1, stream=True
    )
    out, data = ["", ""], [b"", b""]
    async for chunk in stream:
        (choice,) = chunk.choices
        out[choice.index] += choice.delta.content or ""
        if choice.logprobs is not None:
            data[choice.index] += b"".join(bytes(one.bytes or []) for one in choice.logprobs.content or [])
        assert data[choice.index].decode() == out[choice.index], "both come in the same chunk"
    assert out == texts


async def test_completions(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("xé!"))
    answer = await gateway.openai.completions.create(model="tiny", prompt="p", logprobs=2)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens == ["x", "bytes:\\xc3", "bytes:\\xa9", "!", "<|im_end|>"]
    assert found.text_offset == [0, 1, 1, 2, 3]
    assert found.token_logprobs == [-120.0, -195.0, -169.0, -33.0, -256.0]
    assert found.top_logprobs is not None
    assert found.top_logprobs[0] == {"a": -0.5, "b": -1.5, "x": -120.0}


async def test_completions_without_top(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("x"))
    answer = await gateway.openai.completions.create(model="tiny", prompt="p", logprobs=0)
    found = answer.choices[0].logprobs
    assert found is not None
    assert (found.tokens, found.top_logprobs) == (["x", "<|im_end|>"], None)


async def test_a_completion_stream_adds_up_to_the_whole(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("a 🧵 of", "繊維!", size=2))
    body: dict[str, Any] = {"model": "tiny", "prompt": "p", "n": 2, "logprobs": 1}
    whole = await gateway.openai.completions.create(**body)
    for choice in whole.choices:
        pieces = [chunk.choices[0] async for chunk in await gateway.openai.completions.create(**body, stream=True)]
        parts = [piece.logprobs for piece in pieces if piece.index == choice.index and piece.logprobs is not None]
        assert choice.logprobs is not None
        assert [token for part in parts for token in part.tokens or []] == choice.logprobs.tokens
        assert [offset for part in parts for offset in part.text_offset or []] == choice.logprobs.text_offset
        assert [top for part in parts for top in part.top_logprobs or []] == choice.logprobs.top_logprobs


async def test_a_stop_string_takes_the_logprobs_of_its_text_along(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("one. Two"))
    answer = await gateway.openai.completions.create(model="tiny", prompt="p", logprobs=0, stop=". T")
    (choice,) = answer.choices
    assert choice.logprobs is not None
    assert (choice.text, choice.logprobs.tokens) == ("one", ["o", "n", "e"])


async def test_a_lost_node_costs_no_logprob(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "p", "logprobs": 0}
    async with sending(gateway.http.post("/v1/completions", json=body)) as answer:
        first = await gateway.queue.next_submit()
        scores = [TokenLogprob(-1.0, []), TokenLogprob(-2.0, [])]
        await gateway.queue.send(first, 0, ids("ab"), logprobs=scores)
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        scores = [TokenLogprob(-2.5, []), TokenLogprob(-3.0, [])]
        await gateway.queue.send(second, 1, ids("bc"), "stop", logprobs=scores)
        assert (await answer())["choices"][0]["logprobs"]["token_logprobs"] == [-1.0, -2.0, -3.0]


async def test_a_node_that_sends_none_has_failed(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(
        gateway.http.post("/v1/completions", json={"model": "tiny", "prompt": "p", "logprobs": 0})
    ) as answer:
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("ab"))
        assert (await answer())["error"]["code"] == "generation_failed"
    assert await gateway.queue.next_cancel() == submit.request_id


def test_what_is_next_to_impossible_is_a_number_too(tiny: ServedModel) -> None:
    scored = [ScoredToken(HELLO, 0, TokenLogprob(-math.inf, [(END, -math.inf), (END, math.nan), (99_999, -1.0)]))]
    writer = LogprobWriter(tiny.tokenizer, has_top=True)
    (one,) = writer.chat(scored).content
    assert (one.token, one.logprob, one.bytes) == ("hello", -9999.0, list(b"hello"))
    assert [top.logprob for top in one.top_logprobs] == [-9999.0, -9999.0, -1.0]
    assert writer.completion(scored).top_logprobs == [{"<|im_end|>": -9999.0, "token_id:99999": -1.0, "hello": -9999.0}]
