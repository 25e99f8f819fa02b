"""The Conversations API by OpenAI's client, and responses that are part of one; over real sockets and a real Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from redis.asyncio import Redis

from shared.bus import streams
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.endpoints.background.waiting import begun, ended, until
from tests.gateway.memory_queue import Answer, saying
from tests.gateway.tiny import write_model

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(redis: Redis, start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway that keeps answers, with a model that has room for some turns."""
    model = write_model(tmp_path / "tiny.gguf", context_length=512)
    models = [{"name": "tiny", "source": str(model), "max_model_len": 512}]

    async def start(answer: Answer | None = None, **options: Any) -> Gateway:
        sections = {"gateway": {"keep_responses_s": 600}, "models": models} | options
        return await start_gateway(answer, redis=redis, **sections)

    return start


def said(role: str, text: str) -> Any:
    return {"type": "message", "role": role, "content": text}


async def texts_in(gateway: Gateway, conversation_id: str, **query: Any) -> list[str]:
    page = await gateway.openai.conversations.items.list(conversation_id, **({"order": "asc"} | query))
    return [part.text for item in page.data for part in getattr(item, "content", [])]


async def prompt_of(gateway: Gateway, **fields: Any) -> str:
    """What the model reads."""
    prompts: list[list[int]] = []
    answer = gateway.queue.answer
    assert answer is not None

    def noting(payload: Any) -> Any:
        prompts.append(payload.prompt_token_ids)
        return answer(payload)

    gateway.queue.answer = noting
    await gateway.openai.responses.create(**{"model": "tiny"} | fields)
    gateway.queue.answer = answer
    return bytes(token for token in prompts[0] if token < 256).decode()


async def test_a_conversation_is_made_shown_changed_and_removed(start: Starter) -> None:
    conversations = (await start()).openai.conversations
    made = await conversations.create(metadata={"topic": "weather"}, items=[said("user", "hi")])
    assert (made.object, made.metadata) == ("conversation", {"topic": "weather"})
    assert await conversations.retrieve(made.id) == made
    changed = await conversations.update(made.id, metadata={"topic": "rain"})
    assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"topic": "rain"})
    assert await conversations.retrieve(made.id) == changed
    gone = await conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    for refused in (conversations.retrieve, conversations.delete, conversations.items.list):
        with pytest.raises(NotFoundError) as refusal:
            await refused(made.id)
        assert refusal.value.code == "conversation_not_found"


async def test_items_are_listed_added_shown_and_removed(start: Starter) -> None:
    gateway = await start()
    conversations = gateway.openai.conversations
    made = await conversations.create(items=[said("user", "a"), said("assistant", "b")])
    added: Any = await conversations.items.create(made.id, items=[said("user", "c"), said("user", "d")])
    assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[-1].id, False)
    assert await texts_in(gateway, made.id) == ["a", "b", "c", "d"]
    assert await texts_in(gateway, made.id, order="desc") == ["d", "c", "b", "a"]
    first: Any = await conversations.items.list(made.id, limit=2)
    assert first.has_more
    rest = await conversations.items.list(made.id, limit=2, after=first.last_id)
    assert not rest.has_more
    assert await texts_in(gateway, made.id, limit=1, after=added.data[0].id) == ["d"]
    ids: list[Any] = [item.id for item in [*first.data, *rest.data]]
    assert len(set(ids)) == 4
    shown = await conversations.items.retrieve(ids[0], conversation_id=made.id)
    assert shown.model_dump() == first.data[0].model_dump()
    assert (await conversations.items.delete(ids[0], conversation_id=made.id)).id == made.id
    assert await texts_in(gateway, made.id) == ["a", "b", "c"]
    for refused in (conversations.items.retrieve, conversations.items.delete):
        with pytest.raises(NotFoundError) as refusal:
            await refused(ids[0], conversation_id=made.id)
        assert refusal.value.code == "item_not_found"
    with pytest.raises(BadRequestError, match="names no item of this conversation"):
        await conversations.items.list(made.id, after=ids[0])


async def test_a_response_reads_what_was_said_and_adds_to_it(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    made = await gateway.openai.conversations.create(items=[said("user", "I am Ann.")])
    first = await gateway.openai.responses.create(
        model="tiny", input="Who?", conversation=made.id, extra_body={"max_output_tokens": 6}
    )
    assert first.conversation is not None
    assert first.conversation.id == made.id
    assert await texts_in(gateway, made.id) == ["I am Ann.", "Who?", "Hello!"]
    named = await prompt_of(gateway, input="x", conversation={"id": made.id}, max_output_tokens=1)
    turns = [said("user", "I am Ann."), said("user", "Who?"), said("assistant", "Hello!"), said("user", "x")]
    assert named == await prompt_of(gateway, input=turns, max_output_tokens=1)
    assert await texts_in(gateway, made.id) == ["I am Ann.", "Who?", "Hello!", "x", "H"]
    ids = [item.id for item in (await gateway.openai.conversations.items.list(made.id)).data]
    assert len(set(ids)) == 5
    items = await gateway.openai.responses.input_items.list(first.id, order="asc")
    assert [part.text for item in items.data for part in getattr(item, "content", [])] == ["I am Ann.", "Who?"]


async def test_one_that_is_not_kept_adds_to_it_as_well(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    made = await gateway.openai.conversations.create()
    answer = await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id, store=False)
    with pytest.raises(NotFoundError):
        await gateway.openai.responses.retrieve(answer.id)
    assert await texts_in(gateway, made.id) == ["hi", "Hello!"]


async def test_one_that_fails_adds_nothing_and_lets_go(start: Starter) -> None:
    gateway = await start(saying("Hello!", finish_reason="error"))
    made = await gateway.openai.conversations.create()
    for most, code in ((9, "generation_failed"), (1024, "context_length_exceeded")):
        with pytest.raises(APIStatusError) as refusal:
            await gateway.openai.responses.create(
                model="tiny", input="hi", conversation=made.id, max_output_tokens=most
            )
        assert refusal.value.code == code
    gateway.queue.answer = saying("Hello!")

    async def answered() -> bool | None:
        try:
            await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id)
        except BadRequestError:
            return None
        return True

    assert await until(answered)
    assert await texts_in(gateway, made.id) == ["hi", "Hello!"]


@pytest.mark.parametrize("background", [False, True])
async def test_two_at_a_time_are_refused(start: Starter, background: bool) -> None:
    gateway = await start()
    made = await gateway.openai.conversations.create()
    body = {"model": "tiny", "input": "hi", "conversation": made.id, "background": background}
    async with sending(gateway.http.post("/v1/responses", json=body)) as answer:
        submit = await gateway.queue.next_submit()
        second = gateway.openai.responses.create(model="tiny", input="no", conversation=made.id)
        item = gateway.openai.conversations.items.create(made.id, items=[said("user", "no")])
        metadata = gateway.openai.conversations.update(made.id, metadata={"a": "b"})
        for refused in (second, item, metadata):
            with pytest.raises(BadRequestError) as refusal:
                await refused
            assert (refusal.value.code, refusal.value.param) == ("conversation_locked", "conversation")
        tokens = [*b"Hello!", *gateway.queue.payloads[submit.request_id].sampling.stop_token_ids]
        await gateway.queue.send(submit, 0, tokens, "stop")
        assert (await ended(gateway, (await answer())["id"])).status == "completed"
    gateway.queue.answer = saying("Bye!")
    last = await gateway.openai.responses.create(model="tiny", input="yes", conversation=made.id)
    assert last.output_text == "Bye!"
    assert await texts_in(gateway, made.id) == ["hi", "Hello!", "yes", "Bye!"]


async def test_a_lock_ends_with_the_process_that_took_it(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))
    made = await gateway.openai.conversations.create()
    lock = streams.conversation_lock(made.id)
    await redis.set(lock, "gateway-0 resp_1")
    with pytest.raises(BadRequestError, match="at work"):
        await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id)
    await redis.set(lock, "dead resp_1")
    await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id)
    assert await texts_in(gateway, made.id) == ["hi", "Hello!"]
    assert not await redis.exists(lock)


async def test_one_in_the_background_adds_to_it_once_whoever_ends_it(start: Starter) -> None:
    one = await start(name="one")
    made = await one.openai.conversations.create(items=[said("user", "I am Ann.")])
    queued = await begun(one, input="Who?", conversation=made.id)
    await one.queue.next_submit()
    two = await start(saying("Hello!"), name="two")
    with pytest.raises(BadRequestError, match="at work"):
        await two.openai.responses.create(model="tiny", input="hi", conversation=made.id)
    await one.stop()
    assert (await ended(two, queued.id)).output_text == "Hello!"

    async def free() -> bool | None:
        try:
            await two.openai.conversations.update(made.id, metadata={"a": "b"})
        except BadRequestError:
            return None
        return True

    assert await until(free)
    assert await texts_in(two, made.id) == ["I am Ann.", "Who?", "Hello!"]


async def test_a_cancelled_one_adds_nothing_and_lets_go(start: Starter) -> None:
    gateway = await start()
    made = await gateway.openai.conversations.create()
    queued = await begun(gateway, conversation=made.id)
    await gateway.openai.responses.cancel(queued.id)
    await gateway.openai.conversations.items.create(made.id, items=[said("user", "next")])
    assert await texts_in(gateway, made.id) == ["next"]


async def test_one_that_is_removed_meanwhile_stays_away(start: Starter) -> None:
    gateway = await start()
    made = await gateway.openai.conversations.create()
    queued = await begun(gateway, conversation=made.id)
    submit = await gateway.queue.next_submit()
    await gateway.openai.conversations.delete(made.id)
    await gateway.queue.send(submit, 0, gateway.queue.payloads[submit.request_id].sampling.stop_token_ids, "stop")
    assert (await ended(gateway, queued.id)).status == "completed"
    with pytest.raises(NotFoundError):
        await gateway.openai.conversations.retrieve(made.id)


async def test_a_tenant_finds_its_own_alone(start: Starter) -> None:
    keys = [{"key": f"key-of-{name}-0123456789", "tenant": name} for name in ("one", "two")]
    gateway = await start(saying("Hello!"), keys=keys, key=keys[0]["key"])
    made = await gateway.openai.conversations.create()
    other = gateway.openai.with_options(api_key=keys[1]["key"])
    for refused in (other.conversations.retrieve, other.conversations.delete, other.conversations.items.list):
        with pytest.raises(NotFoundError):
            await refused(made.id)
    with pytest.raises(NotFoundError):
        await other.responses.create(model="tiny", input="hi", conversation=made.id)
    answer = await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id)
    assert answer.output_text == "Hello!"
    with pytest.raises(NotFoundError):
        await gateway.openai.responses.retrieve(made.id)
    with pytest.raises(NotFoundError):
        await gateway.openai.conversations.retrieve(answer.id)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
        ({"conversation": {"id": "conv_1", "name": "x"}}, "conversation"),
        ({"conversation": 3}, "conversation"),
    ],
)
async def test_what_is_inconsistent_is_refused(start: Starter, fields: dict[str, Any], param: str) -> None:
    gateway = await start(saying("Hello!"))
    async with gateway.http.post("/v1/responses", json={"model": "tiny", "input": "hi"} | fields) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["param"], error["type"]) == (400, param, "invalid_request_error")


async def test_one_grows_up_to_what_is_kept_of_one(start: Starter) -> None:
    gateway = await start()
    made = await gateway.openai.conversations.create()
    big: Any = [said("user", "x" * 400_000)]
    for _ in range(2):
        await gateway.openai.conversations.items.create(made.id, items=big)
    with pytest.raises(BadRequestError) as refusal:
        await gateway.openai.conversations.items.create(made.id, items=big)
    assert refusal.value.code == "conversation_too_long"
    assert len(await texts_in(gateway, made.id)) == 2


async def test_its_room_is_counted_with_that_of_answers(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))
    made = await gateway.openai.conversations.create()
    for _ in range(3):
        await gateway.openai.responses.create(model="tiny", input="hi", conversation=made.id, max_output_tokens=1)
    await ended(gateway, (await begun(gateway)).id)
    kept = [*await redis.keys(streams.response("*")), *await redis.keys(streams.response_log("*"))]
    assert len(kept) == 6
    assert int(await redis.get(streams.RESPONSES_BYTES) or 0) == sum([await redis.strlen(key) for key in kept])
    assert await redis.zcard(streams.RESPONSES) == 5
    assert 0 < await redis.pttl(streams.response(made.id)) <= 600_000
    await gateway.openai.conversations.delete(made.id)
    assert await redis.zcard(streams.RESPONSES) == 4


async def test_without_storage_there_are_none(start: Starter) -> None:
    gateway = await start(saying("Hello!"), gateway={})
    with pytest.raises(NotFoundError, match="keep_responses_s"):
        await gateway.openai.conversations.create()
    with pytest.raises(BadRequestError, match="keep_responses_s") as refusal:
        await gateway.openai.responses.create(model="tiny", input="hi", conversation="conv_1")
    assert refusal.value.param == "conversation"
