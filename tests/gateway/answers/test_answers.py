"""Answers over a real socket, judged by the official client."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying
from tests.gateway.tiny import END, HELLO, START, ids

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
PROMPT = [START, *ids("user\nhi"), END, *ids("\n"), START, *ids("assistant\n")]
THREAD = "a 🧵 of 繊維"


async def test_chat(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying(THREAD))
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI)
    assert (answer.object, answer.model) == ("chat.completion", "tiny")
    (choice,) = answer.choices
    assert (choice.index, choice.message.role, choice.message.content) == (0, "assistant", THREAD)
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    num_output = len(THREAD.encode()) + 1  # the end token was generated too
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(PROMPT), num_output)
    assert answer.usage.total_tokens == len(PROMPT) + num_output
    assert answer.id == f"chatcmpl-{await gateway.queue.next_finish()}"


async def test_chat_stream(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying(THREAD, size=1))
    stream = await gateway.openai.chat.completions.create(
        model="tiny", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    *texts, end, counts = chunks
    assert texts[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].finish_reason is None and chunk.usage is None for chunk in texts)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in texts) == THREAD
    assert (end.choices[0].finish_reason, end.choices[0].delta.content) == ("stop", None)
    assert counts.choices == []
    assert counts.usage is not None
    assert counts.usage.prompt_tokens == len(PROMPT)


async def test_completion(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying(" world"))
    answer = await gateway.openai.completions.create(model="org/tiny-b", prompt="hello")
    assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
        "text_completion",
        " world",
        "stop",
    )
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 7)


async def test_completion_stream(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying(THREAD, size=2))
    stream = await gateway.openai.completions.create(
        model="tiny", prompt="x", max_tokens=40, stream=True, stream_options={"include_usage": True}
    )
    *texts, counts = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in texts) == THREAD
    assert [chunk.choices[0].finish_reason for chunk in texts] == [None] * (len(texts) - 1) + ["stop"]
    assert (counts.choices, counts.usage is not None and counts.usage.completion_tokens) == (
        [],
        len(THREAD.encode()) + 1,
    )


async def test_the_bytes_of_a_stream(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    body = {"model": "tiny", "prompt": "x", "stream": True}
    async with gateway.http.post("/v1/completions", json=body) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        text = await response.text()
    assert text.endswith('"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    assert all(event.startswith("data: ") for event in text.removesuffix("\n\n").split("\n\n"))
    assert "usage" not in text


async def test_chat_submits_the_rendered_prompt_and_all_that_fits(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    await gateway.openai.chat.completions.create(model="tiny", messages=HI, temperature=0, top_p=0.5, seed=-1)
    submit = await gateway.queue.next_submit()
    assert (submit.model, submit.prompt_tokens, submit.max_tokens) == ("tiny", len(PROMPT), 64 - len(PROMPT))
    assert (submit.slo.name, submit.tenant, submit.gateway) == ("interactive", "default", "gateway-0")


async def test_sampling_reaches_the_payload(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    extra = {"top_k": -1, "min_p": 0.1, "ignore_eos": True, "slo": {"ttft_s": 1.5}}
    task = gateway.http.post(
        "/v1/completions",
        json={"model": "tiny", "prompt": [HELLO], "temperature": 0, "top_p": 0.5, "seed": -1, "max_tokens": 2, **extra},
    )
    async with sending(task) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        await gateway.queue.send(submit, 0, ids("ab"), "length")
        assert (await answer())["choices"][0]["finish_reason"] == "length"
    assert payload.prompt_token_ids == [HELLO]
    sampling = payload.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (2, 0.0, 0.5)
    assert (sampling.top_k, sampling.min_p, sampling.ignore_eos, sampling.stop_token_ids) == (0, 0.1, True, [])
    assert sampling.seed == (1 << 63) - 1
    assert (submit.slo.name, submit.slo.ttft_s) == ("custom", 1.5)


async def test_a_control_token_in_a_message_is_text(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "messages": [{"role": "developer", "content": "<|im_end|>"}]}
    async with sending(gateway.http.post("/v1/chat/completions", json=body)):
        submit = await gateway.queue.next_submit()
        prompt = gateway.queue.payloads[submit.request_id].prompt_token_ids
    assert prompt == [START, *ids("system\n<|im_end|>"), END, *ids("\n"), START, *ids("assistant\n")]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_over_chunks_ends_the_answer(start_gateway: GatewayFactory, stream: bool) -> None:
    gateway = await start_gateway(saying("one\nUser: two", size=5))
    body: dict[str, Any] = {"model": "tiny", "messages": HI, "stop": ["\nUser:"]}
    if stream:
        chunks = [chunk async for chunk in await gateway.openai.chat.completions.create(**body, stream=True)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        answer = await gateway.openai.chat.completions.create(**body)
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, reason) == ("one", "stop")
    await gateway.queue.next_cancel()


async def test_max_tokens_ends_the_answer(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("abcdefghij"))
    answer = await gateway.openai.chat.completions.create(model="tiny", messages=HI, max_completion_tokens=4)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abcd", "length")


async def test_completions_have_sixteen_tokens_by_default(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("x" * 40))
    answer = await gateway.openai.completions.create(model="tiny", prompt="a")
    assert answer.choices[0].text == "x" * 16


async def test_seeds_are_random_without_one_and_kept_with_one(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    seeds = []
    for seed in (None, None, 7, 7):
        request = gateway.http.post("/v1/completions", json={"model": "tiny", "prompt": "a", "seed": seed})
        async with sending(request):
            submit = await gateway.queue.next_submit()
            seeds.append(gateway.queue.payloads[submit.request_id].sampling.seed)
    assert seeds[0] != seeds[1]
    assert seeds[2:] == [7, 7]
