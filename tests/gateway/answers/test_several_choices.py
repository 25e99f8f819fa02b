"""Several continuations of one prompt or of several, judged by the official client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from shared.messages.requests.payload import Output, Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying_each
from tests.gateway.tiny import ids

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
TEXT = "/v1/completions"


async def test_chat_has_all_choices_in_their_order(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("one", "a second one", "3"))
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI, n=3)
    found = [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices]
    assert found == [(0, "one", "stop"), (1, "a second one", "stop"), (2, "3", "stop")]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len("one") + len("a second one") + len("3") + 3, "with three end tokens"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    await gateway.queue.next_finish()


async def test_a_chat_stream_says_of_each_chunk_whose_it_is(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("one", "a second one"))
    stream = await gateway.openai.chat.completions.create(
        model="tiny", messages=HI, n=2, stream=True, stream_options={"include_usage": True}
    )
    *chunks, counts = [chunk async for chunk in stream]
    choices = [chunk.choices[0] for chunk in chunks]
    assert [(one.index, one.delta.role) for one in choices[:2]] == [(0, "assistant"), (1, "assistant")]
    texts = {number: "".join(one.delta.content or "" for one in choices if one.index == number) for number in (0, 1)}
    assert texts == {0: "one", 1: "a second one"}
    ends = [(one.index, one.finish_reason) for one in choices if one.finish_reason]
    assert ends == [(0, "stop"), (1, "stop")]
    assert counts.usage is not None
    assert counts.usage.completion_tokens == len("onea second one") + 2


async def test_completions_stream_all_choices(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each("abcd", "x"))
    stream = await gateway.openai.completions.create(model="tiny", prompt="p", n=2, best_of=2, stream=True)
    choices = [chunk.choices[0] async for chunk in stream]
    for number, text in ((0, "abcd"), (1, "x")):
        mine = [one for one in choices if one.index == number]
        assert "".join(one.text for one in mine) == text
        assert [one.finish_reason for one in mine if one.finish_reason] == ["stop"]


async def test_a_stop_string_ends_one_choice_and_the_others_go_on(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "x", "n": 2, "stop": ".", "max_tokens": 9}
    async with sending(gateway.http.post(TEXT, json=body)) as answer:
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("ab.c"), choice=0)
        await gateway.queue.send(submit, 4, ids("d"), choice=0)
        await gateway.queue.send(submit, 0, ids("xyz"), choice=1)
        await gateway.queue.send(submit, 3, ids("z."), choice=1)
        found = [(one["index"], one["text"], one["finish_reason"]) for one in (await answer())["choices"]]
    assert found == [(0, "ab", "stop"), (1, "xyzz", "stop")]
    assert await gateway.queue.next_cancel() == submit.request_id, "the node goes on with both"


async def test_a_lost_request_goes_on_with_every_choice_where_it_was(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "x", "n": 2, "max_tokens": 9}
    async with sending(gateway.http.post(TEXT, json=body)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("abc"), "stop", choice=0, is_last=False)
        await gateway.queue.send(first, 0, ids("xy"), choice=1)
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        assert gateway.queue.payloads[second.request_id].outputs == [Output(ids("abc"), "stop"), Output(ids("xy"))]
        assert (first.prompt_tokens, first.max_tokens) == (1, 18)
        assert (second.prompt_tokens, second.max_tokens) == (3, 7), "only the second choice is left to do"
        await gateway.queue.send(first, 2, ids("GHOST"), choice=1)
        await gateway.queue.send(second, 2, ids("z"), "length", choice=1)
        found = await answer()
    assert [one["text"] for one in found["choices"]] == ["abc", "xyz"]
    assert found["usage"] == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}
    assert await gateway.queue.next_finish() == first.request_id


async def test_an_error_ends_all_choices(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json={"model": "tiny", "prompt": "x", "n": 2})) as answer:
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("ab"), choice=0)
        await gateway.queue.send(submit, 0, [], "error", choice=1)
        assert (await answer())["error"]["code"] == "generation_failed"


# --- ranked candidates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "num_candidates"),
    [({"best_of": 4}, 4), ({"use_beam_search": True}, 2), ({"use_beam_search": True, "best_of": 4}, 4)],
)
async def test_candidates_are_made_and_the_best_of_them_returned(
    start_gateway: GatewayFactory, fields: dict[str, Any], num_candidates: int
) -> None:
    gateway = await start_gateway(saying_each("best", "second", size=99))
    answer = await gateway.openai.completions.create(model="tiny", prompt="x", n=2, max_tokens=8, extra_body=fields)
    assert [choice.text for choice in answer.choices] == ["best", "second"]
    assert (await gateway.queue.next_submit()).max_tokens == num_candidates * 8, "all candidates are work"


async def test_how_candidates_are_made_reaches_the_payload(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "x", "n": 2, "best_of": 3, "use_beam_search": True, "length_penalty": 0.5}
    async with sending(gateway.http.post(TEXT, json=body)):
        sampling = gateway.queue.payloads[(await gateway.queue.next_submit()).request_id].sampling
    assert (sampling.num_choices, sampling.num_candidates) == (2, 3)
    assert (sampling.is_beam, sampling.is_ranked, sampling.length_penalty) == (True, True, 0.5)


async def test_penalties_and_biases_reach_the_payload(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {
        "model": "tiny",
        "messages": HI,
        "presence_penalty": -2,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.25,
        "logit_bias": {"98": 5, "97": -100},
    }
    async with sending(gateway.http.post("/v1/chat/completions", json=body)):
        sampling = gateway.queue.payloads[(await gateway.queue.next_submit()).request_id].sampling
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (-2.0, 0.5, 1.25)
    assert sampling.logit_bias == [(97, -100.0), (98, 5.0)]
    assert (sampling.num_choices, sampling.num_candidates, sampling.num_logprobs) == (1, 1, None)


# --- several prompts ------------------------------------------------------------------------------------------------


def repeating(payload: Payload) -> list[Chunk]:
    """Nodes that say every prompt again, once in each choice, with the number of the choice behind it."""
    texts = [f"{bytes(payload.prompt_token_ids).decode()}{choice}" for choice in range(payload.sampling.num_choices)]
    return list(saying_each(*texts)(payload))


@pytest.mark.parametrize("stream", [False, True])
async def test_several_prompts_have_their_choices_one_prompt_after_the_other(
    start_gateway: GatewayFactory, stream: bool
) -> None:
    gateway = await start_gateway(repeating)
    body: dict[str, Any] = {"model": "tiny", "prompt": ["ab", "x", "tuv"], "n": 2}
    if stream:
        texts = [""] * 6
        async for chunk in await gateway.openai.completions.create(**body, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
    else:
        answer = await gateway.openai.completions.create(**body)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4, 5]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 2 * (4 + 3 + 5))
        texts = [choice.text for choice in answer.choices]
    assert texts == ["ab0", "ab1", "x0", "x1", "tuv0", "tuv1"]
    submits = [await gateway.queue.next_submit() for _ in range(3)]
    request_id = submits[0].request_id.removesuffix("-0")
    assert [submit.request_id for submit in submits] == [f"{request_id}-{number}" for number in range(3)]
    assert gateway.queue.payloads == {}


async def test_prompts_may_be_lists_of_token_ids(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(repeating)
    answer = await gateway.openai.completions.create(model="tiny", prompt=[ids("ab"), ids("c")])
    assert [choice.text for choice in answer.choices] == ["ab0", "c0"]


async def test_one_of_several_prompts_goes_on_after_its_node_is_lost(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json={"model": "tiny", "prompt": ["a", "b"]})) as answer:
        first, second = await gateway.queue.next_submit(), await gateway.queue.next_submit()
        await gateway.queue.send(second, 0, ids("xy"))
        await gateway.queue.lose(second)
        again = await gateway.queue.next_submit()
        assert gateway.queue.payloads[again.request_id].outputs == [Output(ids("xy"))]
        await gateway.queue.send(again, 2, ids("z"), "stop")
        await gateway.queue.send(first, 0, ids("w"), "stop")
        assert [one["text"] for one in (await answer())["choices"]] == ["w", "xyz"]


async def test_a_prompt_that_fails_fails_the_call_and_the_others_are_cancelled(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json={"model": "tiny", "prompt": ["a", "b"]})) as answer:
        first, second = await gateway.queue.next_submit(), await gateway.queue.next_submit()
        await gateway.queue.send(second, 0, [], "error")
        assert (await answer())["error"]["code"] == "generation_failed"
    assert await gateway.queue.next_cancel() == first.request_id
    assert await gateway.queue.next_finish() == second.request_id
    assert gateway.queue.payloads == {}


async def test_each_prompt_takes_a_place(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(repeating, gateway={"max_inflight": 2})
    with pytest.raises(openai.BadRequestError, match="these are 3 requests; at most 2 are taken at a time") as caught:
        await gateway.openai.completions.create(model="tiny", prompt=["a", "b", "c"])
    assert caught.value.param == "prompt"
    answer = await gateway.openai.completions.create(model="tiny", prompt=["a", "b"])
    assert [choice.text for choice in answer.choices] == ["a0", "b0"]


@pytest.mark.parametrize("prompt", [["a", ""], ["a", "x" * 64]])
async def test_one_wrong_prompt_refuses_the_call(start_gateway: GatewayFactory, prompt: list[str]) -> None:
    gateway = await start_gateway()
    with pytest.raises(openai.BadRequestError) as caught:
        await gateway.openai.completions.create(model="tiny", prompt=prompt)
    assert caught.value.param == "prompt"
    assert gateway.queue.submits.empty()


# --- echo -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["pro 🧵", ids("pro 🧵")])
async def test_an_echo_begins_every_choice(start_gateway: GatewayFactory, prompt: Any) -> None:
    gateway = await start_gateway(saying_each("ab", "x"))
    body: dict[str, Any] = {"model": "tiny", "prompt": prompt, "n": 2, "echo": True}
    whole = await gateway.openai.completions.create(**body)
    assert [choice.text for choice in whole.choices] == ["pro 🧵ab", "pro 🧵x"]
    async with gateway.http.post(TEXT, json=body | {"stream": True}) as response:
        events = [line.removeprefix("data: ") for line in (await response.text()).splitlines() if line]
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert [(one["index"], one["text"]) for one in choices[:2]] == [(0, "pro 🧵"), (1, "pro 🧵")]
    assert "".join(one["text"] for one in choices if one["index"] == 0) == "pro 🧵ab"
