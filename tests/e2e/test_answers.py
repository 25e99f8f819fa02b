"""What a client of a healthy cluster gets, through OpenAI's own client."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from openai.types import CompletionChoice
from openai.types.chat import ChatCompletionUserMessageParam

from shared.config.engines.engine import EngineOptions
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import MAX_TOKENS, PROMPTS, Ask, complete

QUESTION = "What is the capital of France?"
CAPITAL: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": QUESTION}]
BLOCK_SIZE = EngineOptions().block_size
EMOJI_PROMPT = "🙂🙃🙂🙃🙂🙃 漢字かな 漢字かな 漢字かな 🙂🙃🙂🙃🙂🙃 漢字かな 漢字かな"


async def test_both_models_are_listed(client: AsyncOpenAI, cluster: Cluster) -> None:
    models = [model async for model in client.models.list()]
    assert [model.id for model in models] == cluster.models
    assert {model.object for model in models} == {"model"}
    assert (await client.models.retrieve(cluster.models[1])).id == cluster.models[1]


async def test_chat_knows_the_capital_of_france_streamed_or_not(client: AsyncOpenAI, cluster: Cluster) -> None:
    for model in cluster.models:
        whole = await client.chat.completions.create(model=model, messages=CAPITAL, max_tokens=24, temperature=0)
        assert "Paris" in (whole.choices[0].message.content or "")
        assert (whole.model, whole.choices[0].finish_reason) == (model, "stop")
        stream = await client.chat.completions.create(
            model=model,
            messages=CAPITAL,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == whole.choices[0].message.content
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
        usage, streamed = whole.usage, chunks[-1].usage
        assert usage is not None
        assert streamed is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert 0 < usage.completion_tokens < 24 < usage.prompt_tokens + 24
        assert (streamed.prompt_tokens, streamed.completion_tokens) == (usage.prompt_tokens, usage.completion_tokens)


async def test_of_equal_prompts_one_lies_in_a_cache(client: AsyncOpenAI, cluster: Cluster) -> None:
    for model in cluster.models:
        # one of the two nodes has computed at least one of three before
        answers = [await client.chat.completions.create(model=model, messages=CAPITAL, max_tokens=1) for _ in range(3)]
        usages = [answer.usage for answer in answers if answer.usage is not None]
        found = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage.prompt_tokens_details]
        num_whole = (usages[0].prompt_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
        assert max(one or 0 for one in found) == num_whole > 0, "whole blocks, never the last token"


async def test_responses_say_what_the_chat_says_streamed_or_not(client: AsyncOpenAI, cluster: Cluster) -> None:
    model = cluster.models[0]
    chat = await client.chat.completions.create(model=model, messages=CAPITAL, max_tokens=24, temperature=0)
    whole = await client.responses.create(model=model, input=QUESTION, max_output_tokens=24, temperature=0)
    assert (whole.output_text, whole.status) == (chat.choices[0].message.content, "completed")
    async with client.responses.stream(model=model, input=QUESTION, max_output_tokens=24, temperature=0) as stream:
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        streamed = await stream.get_final_response()
    assert text == streamed.output_text == whole.output_text
    assert chat.usage is not None
    for usage in (whole.usage, streamed.usage):
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)


async def test_a_response_goes_on_from_the_one_before(client: AsyncOpenAI, cluster: Cluster) -> None:
    asked: dict[str, Any] = {"model": cluster.models[0], "max_output_tokens": 24, "temperature": 0}
    first = await client.responses.create(input=QUESTION, **asked)
    named = await client.responses.create(input="And of Spain?", previous_response_id=first.id, **asked)
    said: list[Any] = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": first.output_text}]
    sent = await client.responses.create(input=[*said, {"role": "user", "content": "And of Spain?"}], **asked)
    assert named.output_text == sent.output_text
    assert named.usage is not None
    assert sent.usage is not None
    assert named.usage.input_tokens == sent.usage.input_tokens
    assert (await client.responses.retrieve(named.id)).output_text == named.output_text


async def test_completion_knows_the_capital_of_france_streamed_or_not(client: AsyncOpenAI, cluster: Cluster) -> None:
    prompt = "The capital of France is"
    for model in cluster.models:
        whole = await client.completions.create(model=model, prompt=prompt, max_tokens=12, temperature=0)
        assert "Paris" in whole.choices[0].text
        stream = await client.completions.create(model=model, prompt=prompt, max_tokens=12, temperature=0, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text
        assert whole.usage is not None
        assert whole.usage.prompt_tokens >= len(prompt.split())


async def test_both_models_answer_interleaved_requests_alike(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    first, second = cluster.models
    streams = [Ask(model, prompt, 16) for prompt in PROMPTS[:2] for model in (first, second)]

    async def whole(model: str, prompt: str) -> str:
        answer = await client.completions.create(
            model=model, prompt=prompt, max_tokens=16, temperature=0, extra_body={"ignore_eos": True}
        )
        return answer.choices[0].text

    asks = [(model, prompt) for prompt in PROMPTS[2:4] for model in (first, second)]
    answers, texts = await asyncio.gather(complete(client, streams), asyncio.gather(*(whole(*ask) for ask in asks)))
    for ask, answer in zip(streams, answers, strict=True):
        assert undisturbed[ask.prompt].startswith(answer.text)
        assert (answer.num_tokens, answer.finish_reason) == (16, "length")
    for (_, prompt), text in zip(asks, texts, strict=True):
        assert undisturbed[prompt].startswith(text)
        assert text


async def test_the_same_answer_again_from_either_model(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    asks = [Ask(model, PROMPTS[-1], 30) for model in cluster.models]
    first, second = [answer.text for answer in await complete(client, asks)]
    assert first == second
    assert undisturbed[PROMPTS[-1]].startswith(first)


async def test_ignore_eos_goes_on_to_the_limit(client: AsyncOpenAI, cluster: Cluster) -> None:
    prompt = "The three most important inventions in history are"
    short = await client.completions.create(model=cluster.models[0], prompt=prompt, max_tokens=40, temperature=0)
    long = await client.completions.create(
        model=cluster.models[0], prompt=prompt, max_tokens=40, temperature=0, extra_body={"ignore_eos": True}
    )
    assert short.choices[0].finish_reason == "stop"
    assert long.choices[0].finish_reason == "length"
    assert long.usage is not None
    assert long.usage.completion_tokens == 40
    assert long.choices[0].text.startswith(short.choices[0].text)


async def test_a_seed_repeats_what_was_drawn(client: AsyncOpenAI, cluster: Cluster) -> None:
    async def draw(model: str, seed: int | None) -> str:
        answer = await client.completions.create(
            model=model, prompt=PROMPTS[0], max_tokens=24, temperature=1.0, top_p=0.95, seed=seed
        )
        return answer.choices[0].text

    first, second = cluster.models
    asks = [(first, 7), (first, 7), (second, 7), (first, 8), (first, None), (first, None)]
    texts = await asyncio.gather(*(draw(*ask) for ask in asks))
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[2:])) == 4


@pytest.mark.parametrize("stop", ["Earth", ["no such text", "arth, M"]])
async def test_a_stop_string_ends_the_answer_before_it(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str], stop: str | list[str]
) -> None:
    prompt = "A list of the planets: Mercury,"
    expected = undisturbed[prompt].partition(stop if isinstance(stop, str) else stop[1])[0]
    assert expected != undisturbed[prompt]
    model = cluster.models[0]
    whole = await client.completions.create(model=model, prompt=prompt, max_tokens=60, temperature=0, stop=stop)
    stream = await client.completions.create(
        model=model, prompt=prompt, max_tokens=60, temperature=0, stop=stop, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert whole.choices[0].text == expected
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "stop"


async def test_characters_come_whole(cluster: Cluster) -> None:
    """A character of several tokens is never split: each event is valid UTF-8 and no replacement character is sent."""
    body = {"model": cluster.models[0], "prompt": EMOJI_PROMPT, "max_tokens": 48, "temperature": 0, "ignore_eos": True}
    async with aiohttp.ClientSession(cluster.url) as session:
        async with session.post("/v1/completions", json=body) as response:
            whole = (await response.json())["choices"][0]["text"]
        async with session.post("/v1/completions", json=body | {"stream": True}) as response:
            assert response.content_type == "text/event-stream"
            events = [line.decode() for line in (await response.read()).splitlines() if line]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    pieces = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-1]]
    assert "".join(pieces) == whole
    assert not any("\ufffd" in piece for piece in pieces)
    assert sum(ord(character) > 0x2000 for character in whole) >= 8


# --- several choices ------------------------------------------------------------------------------------------------


async def test_greedy_choices_are_all_the_same_answer(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    answer = await client.completions.create(
        model=cluster.models[0], prompt=PROMPTS[0], n=2, max_tokens=16, temperature=0, extra_body={"ignore_eos": True}
    )
    first, second = answer.choices
    assert (first.index, second.index) == (0, 1)
    assert first.text == second.text
    assert undisturbed[PROMPTS[0]].startswith(first.text)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 32


async def test_drawn_choices_differ_and_a_seed_repeats_them_streamed_or_not(
    client: AsyncOpenAI, cluster: Cluster
) -> None:
    body: dict[str, Any] = {"prompt": PROMPTS[0], "max_tokens": 24, "seed": 7, "temperature": 1.0}
    first, second = cluster.models
    whole = await client.completions.create(model=first, n=3, **body)
    texts = [choice.text for choice in whole.choices]
    assert len(set(texts)) == 3
    alone = await client.completions.create(model=second, **body)
    assert alone.choices[0].text == texts[0], "the first choice is what one alone would be"
    streamed = [""] * 3
    async for chunk in await client.completions.create(model=second, n=3, stream=True, **body):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


async def test_several_prompts_have_the_answers_that_each_has_alone(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    answer = await client.completions.create(
        model=cluster.models[0], prompt=PROMPTS, max_tokens=12, temperature=0, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == list(range(len(PROMPTS)))
    for choice, prompt in zip(answer.choices, PROMPTS, strict=True):
        assert undisturbed[prompt].startswith(choice.text)


# --- logprobs -------------------------------------------------------------------------------------------------------


async def test_a_greedy_token_is_the_most_likely_one(client: AsyncOpenAI, cluster: Cluster) -> None:
    answer = await client.chat.completions.create(
        model=cluster.models[0], messages=CAPITAL, max_tokens=24, temperature=0, logprobs=True, top_logprobs=5
    )
    (choice,) = answer.choices
    assert choice.logprobs is not None
    scored = choice.logprobs.content
    assert scored is not None
    assert answer.usage is not None
    assert len(scored) == answer.usage.completion_tokens
    assert b"".join(bytes(one.bytes or []) for one in scored).decode() == choice.message.content
    for one in scored:
        assert len(one.top_logprobs) == 5
        assert (one.token, one.logprob) == (one.top_logprobs[0].token, one.top_logprobs[0].logprob)
        logprobs = [top.logprob for top in one.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert sum(map(math.exp, logprobs)) <= 1 + 1e-3


async def test_streamed_logprobs_of_two_choices_are_those_of_the_whole(client: AsyncOpenAI, cluster: Cluster) -> None:
    body: dict[str, Any] = {"model": cluster.models[0], "prompt": PROMPTS[1], "n": 2, "max_tokens": 12, "seed": 3}
    whole = await client.completions.create(logprobs=2, **body)
    parts: list[list[Any]] = [[], []]
    async for chunk in await client.completions.create(logprobs=2, stream=True, **body):
        for choice in chunk.choices:
            parts[choice.index].append(choice.logprobs)
    for choice in whole.choices:
        expected = choice.logprobs
        assert expected is not None
        assert [token for part in parts[choice.index] for token in part.tokens] == expected.tokens
        assert [offset for part in parts[choice.index] for offset in part.text_offset] == expected.text_offset
        found = [logprob for part in parts[choice.index] for logprob in part.token_logprobs]
        assert found == pytest.approx(expected.token_logprobs, abs=1e-3)


# --- ranked candidates, biases --------------------------------------------------------------------------------------


def mean_logprob(choice: CompletionChoice) -> float:
    assert choice.logprobs is not None
    logprobs = choice.logprobs.token_logprobs
    assert logprobs
    return sum(one for one in logprobs if one is not None) / len(logprobs)


async def test_best_of_returns_the_likeliest_of_what_is_drawn(client: AsyncOpenAI, cluster: Cluster) -> None:
    body: dict[str, Any] = {
        "model": cluster.models[0],
        "prompt": PROMPTS[0],
        "max_tokens": 12,
        "seed": 5,
        "logprobs": 0,
    }
    drawn = await client.completions.create(n=3, **body)
    best = await client.completions.create(n=2, best_of=3, **body)
    expected = sorted(drawn.choices, key=mean_logprob, reverse=True)[:2]
    assert [choice.text for choice in best.choices] == [choice.text for choice in expected]
    assert [choice.index for choice in best.choices] == [0, 1]


async def test_beams_are_different_answers_the_likeliest_first(client: AsyncOpenAI, cluster: Cluster) -> None:
    body: dict[str, Any] = {"model": cluster.models[0], "prompt": PROMPTS[1], "max_tokens": 12, "logprobs": 0}
    answer = await client.completions.create(n=2, extra_body={"use_beam_search": True, "best_of": 3}, **body)
    again = await client.completions.create(n=2, extra_body={"use_beam_search": True, "best_of": 3}, **body)
    first, second = answer.choices
    assert first.text != second.text
    assert mean_logprob(first) >= mean_logprob(second)
    assert [choice.text for choice in again.choices] == [first.text, second.text], "there is no chance in it"


async def test_a_bias_can_force_a_token(client: AsyncOpenAI, cluster: Cluster) -> None:
    body: dict[str, Any] = {"model": cluster.models[0], "temperature": 0}
    token_id = 1234
    forced = await client.completions.create(prompt="The", max_tokens=3, logit_bias={str(token_id): 100}, **body)
    prompt = await client.completions.create(prompt=[token_id] * 3, max_tokens=1, echo=True, **body)
    assert forced.choices[0].text
    assert prompt.choices[0].text.startswith(forced.choices[0].text)


@pytest.mark.parametrize(
    "penalty", [{"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 1.5}]
)
async def test_a_penalty_makes_an_answer_repeat_itself_less(
    client: AsyncOpenAI, cluster: Cluster, penalty: dict[str, float]
) -> None:
    async def num_different_tokens(**fields: float) -> int:
        answer = await client.completions.create(
            model=cluster.models[0],
            prompt=PROMPTS[0],
            max_tokens=MAX_TOKENS,
            temperature=0,
            logprobs=0,
            extra_body={"ignore_eos": True, **fields},
        )
        assert answer.choices[0].logprobs is not None
        tokens = answer.choices[0].logprobs.tokens or []
        assert len(tokens) == MAX_TOKENS
        return len(set(tokens))

    assert await num_different_tokens(**penalty) > await num_different_tokens()
