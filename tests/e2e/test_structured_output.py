"""Answers that are held to a form, by OpenAI's own client: on a small model, which would not keep to it by itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionUserMessageParam
from pydantic import BaseModel, Field

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Ask, complete

ADA: list[ChatCompletionUserMessageParam] = [
    {"role": "user", "content": "Ada Lovelace was born in London in 1815. Describe her."}
]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
        "cities": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
        "kind": {"enum": ["person", "city"]},
    },
    "required": ["name", "born", "cities", "kind"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "description", "schema": SCHEMA, "strict": True}}
NUM_YEARS = 60
YEARS = f"(?:[0-9]{{4}} ){{{NUM_YEARS}}}"


class Work(BaseModel):
    """A part of the answer, which its schema refers to."""

    title: Annotated[str, Field(max_length=30)]
    year: int | None


class Person(BaseModel):
    """What is asked for."""

    name: Annotated[str, Field(max_length=30)]
    kind: Literal["mathematician", "painter"]
    works: Annotated[list[Work], Field(max_length=2)]


async def test_answers_are_of_their_schema_streamed_or_not(client: AsyncOpenAI, cluster: Cluster) -> None:
    for model in cluster.models:
        asked: dict[str, Any] = {"model": model, "messages": ADA, "temperature": 0, "max_tokens": 200}
        whole = await client.chat.completions.create(**asked, response_format=FORMAT)
        written = json.loads(whole.choices[0].message.content or "")
        jsonschema.validate(written, SCHEMA)
        assert whole.choices[0].finish_reason == "stop"
        assert "Ada" in written["name"]
        stream = await client.chat.completions.create(**asked, response_format=FORMAT, stream=True)
        text = "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])
        assert text == whole.choices[0].message.content
    kept = [cluster.metric(node, "treadle_node_structured_accepted_tokens_total") for node in cluster.nodes]
    assert sum(kept) > 0, "what the schema leaves is guessed, and comes several tokens a step"


async def test_the_clients_own_parser_gets_what_it_asks_for(client: AsyncOpenAI, cluster: Cluster) -> None:
    """Schemas as pydantic and OpenAI's client write them: references, unions with null, no further properties."""
    answer = await client.chat.completions.parse(
        model=cluster.models[0], messages=ADA, response_format=Person, temperature=0, max_tokens=200
    )
    found = answer.choices[0].message.parsed
    assert isinstance(found, Person)
    assert "Ada" in found.name


async def test_each_choice_at_a_high_temperature_is_of_its_form(client: AsyncOpenAI, cluster: Cluster) -> None:
    answer = await client.completions.create(
        model=cluster.models[0],
        prompt="A date:",
        max_tokens=40,
        temperature=2,
        n=3,
        seed=1,
        extra_body={"structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}},
    )
    texts = [choice.text for choice in answer.choices]
    assert all(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) for text in texts)
    assert len(set(texts)) == 3
    assert [choice.finish_reason for choice in answer.choices] == ["stop"] * 3


async def test_others_get_what_they_get_without_it(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    model = cluster.models[0]
    held = asyncio.gather(
        *(
            client.chat.completions.create(
                model=model, messages=ADA, temperature=1, seed=seed, max_tokens=200, response_format=FORMAT
            )
            for seed in range(3)
        )
    )
    asks = [Ask(model, prompt, 24) for prompt in PROMPTS]
    answers = await complete(client, asks)
    for ask, answer in zip(asks, answers, strict=True):
        assert undisturbed[ask.prompt].startswith(answer.text)
    for one in await held:
        jsonschema.validate(json.loads(one.choices[0].message.content or ""), SCHEMA)


async def years(client: AsyncOpenAI, model: str, begun: asyncio.Event) -> str:
    """A long answer of one form; ``begun`` is set when a part of it is here."""
    stream = await client.completions.create(
        model=model,
        prompt="Years in which something happened: 1914 1939",
        max_tokens=8 * NUM_YEARS,
        temperature=0,
        stream=True,
        extra_body={"structured_outputs": {"regex": " ?" + YEARS}},
    )
    text = ""
    async for chunk in stream:
        text += "".join(choice.text for choice in chunk.choices)
        if len(text) > 5 * NUM_YEARS // 10:
            begun.set()
    begun.set()
    return text


async def test_an_answer_keeps_its_form_when_its_engine_dies(client: AsyncOpenAI, cluster: Cluster) -> None:
    model = cluster.models[0]
    begun = asyncio.Event()
    answer = asyncio.create_task(years(client, model, begun))
    await begun.wait()
    assert not answer.done()
    busy = [node for node in cluster.nodes if cluster.status(node)["num_running"]]
    assert busy
    for node in busy:
        os.kill(cluster.status(node)["engine_pid"], signal.SIGKILL)
    assert re.fullmatch(" ?" + YEARS, await answer), "no token is lost or doubled, and each is of the form"
    for node in busy:
        await asyncio.to_thread(wait_for, "a new engine", lambda node=node: cluster.get(node, "/readyz")[0] == 200)


async def test_what_cannot_be_kept_is_refused_at_once(client: AsyncOpenAI, cluster: Cluster) -> None:
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {"type": "string"}}}}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=cluster.models[0], messages=ADA, response_format=wrong)
    assert refused.value.param == "response_format"
    assert 'Unimplemented keys: ["not"]' in refused.value.message


async def test_predicted_devices_keep_to_forms_too(predicted: Cluster) -> None:
    async with AsyncOpenAI(base_url=f"{predicted.url}/v1", api_key="-", max_retries=0) as client:
        answer = await client.completions.create(
            model="chat",
            prompt="he hello",
            max_tokens=60,
            extra_body={"structured_outputs": {"json": {"enum": ["red", "green", "blue"]}}},
        )
    assert json.loads(answer.choices[0].text) in {"red", "green", "blue"}
