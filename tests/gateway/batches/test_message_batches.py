"""Anthropic's message batches from their requests to their results, by Anthropic's own client, over sockets."""

from __future__ import annotations

import asyncio
import json
import math
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.messages import MessageBatch

from tests.gateway.batches.conftest import POLL_S, WAIT_S, BatchWorld, WorldFactory, chat
from tests.gateway.http_client import http_client
from tests.gateway.memory_queue import saying
from tests.gateway.tool_models import answering, output_ids, write_family

TWO_TENANTS = [{"key": "a", "tenant": "acme"}, {"key": "b", "tenant": "beta"}]


def asked(custom_id: str, text: str = "hello", **params: Any) -> Any:
    """A request that the tiny model answers."""
    return {
        "custom_id": custom_id,
        "params": {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8} | params,
    }


@asynccontextmanager
async def client_of(world: BatchWorld, key: str = "none") -> AsyncIterator[AsyncAnthropic]:
    url, http = world.there.url, http_client()
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=http) as client:
        yield client


async def ended(client: AsyncAnthropic, batch: MessageBatch) -> MessageBatch:
    """The batch when it has."""
    async with asyncio.timeout(WAIT_S):
        while (found := await client.messages.batches.retrieve(batch.id)).processing_status != "ended":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
    return found


async def results_of(client: AsyncAnthropic, batch: MessageBatch) -> dict[str, Any]:
    """By the names of their requests."""
    return {line.custom_id: line.result async for line in await client.messages.batches.results(batch.id)}


def counts(**known: int) -> dict[str, int]:
    return {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0} | known


async def test_each_request_has_its_answer_or_its_error(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    requests = [asked("a"), asked("too-long", max_tokens=1000), asked("b", top_k=None), asked("c", model="nope")]
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=requests)
        done = await ended(client, made)
        results = await results_of(client, done)

    assert made.id.startswith("msgbatch_")
    assert (made.type, made.processing_status, made.request_counts.model_dump()) == (
        *("message_batch", "in_progress"),
        counts(processing=4),
    )
    assert (made.ended_at, made.cancel_initiated_at, made.archived_at, made.results_url) == (None, None, None, None)
    assert made.expires_at - made.created_at == timedelta(days=1)
    assert done.request_counts.model_dump() == counts(succeeded=2, errored=2)
    assert done.ended_at is not None
    assert done.ended_at >= made.created_at
    assert done.results_url == f"/v1/messages/batches/{made.id}/results"
    assert sorted(results) == ["a", "b", "c", "too-long"]
    for name in ("a", "b"):
        message = results[name].message
        assert (results[name].type, message.type, message.content[0].text) == ("succeeded", "message", "fine")
        assert (message.model, message.usage.output_tokens) == ("tiny", 5)
    assert (results["c"].type, results["c"].error.type, results["c"].error.error.type) == (
        *("errored", "error", "not_found_error"),
    )
    assert (results["too-long"].error.error.type, results["too-long"].error.error.code) == (
        *("invalid_request_error", "context_length_exceeded"),
    )


async def test_an_answer_is_one_whatever_numbers_its_model_wrote(start_world: WorldFactory, tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get", "arguments": {"n": 1e999}}\n</tool_call>'
    family = write_family(tmp_path, "hermes")
    world = await start_world(answering(output_ids(call)), models=[family])
    tools = [{"name": "get", "input_schema": {"type": "object", "properties": {"n": {"type": "number"}}}}]
    async with client_of(world) as client:
        request = asked("a", model="hermes", max_tokens=100, tools=tools)
        done = await ended(client, await client.messages.batches.create(requests=[request]))
        results = await results_of(client, done)

    assert done.request_counts.model_dump() == counts(succeeded=1)
    assert results["a"].message.content[0].input == {"n": math.inf}


async def test_times_are_written_as_anthropic_writes_them(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))

    async with world.there.http.post("/v1/messages/batches", json={"requests": [asked("a")]}) as response:
        made = await response.json()

    assert list(made) == [
        *("type", "id", "processing_status", "request_counts", "created_at", "expires_at", "ended_at"),
        *("cancel_initiated_at", "archived_at", "results_url"),
    ]
    assert made["created_at"].endswith("Z")
    assert len(made["created_at"]) == len("2026-01-01T00:00:00Z")


async def test_a_batch_that_is_cancelled_keeps_its_answers(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 2})
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked(name) for name in ("a", "b", "c", "d")])
        first, second = await world.there.queue.next_submit(), await world.there.queue.next_submit()
        await world.there.queue.send(first, 0, [*b"ok"], "length")
        third = await world.there.queue.next_submit()

        with pytest.raises(anthropic.ConflictError, match="its results are there when it has") as early:
            await client.get(f"/v1/messages/batches/{made.id}/results", cast_to=object)
        with pytest.raises(anthropic.ConflictError, match="the batch has not ended; cancel it"):
            await client.messages.batches.delete(made.id)
        cancelling = await client.messages.batches.cancel(made.id)
        done = await ended(client, made)
        results = await results_of(client, done)
        with pytest.raises(anthropic.ConflictError, match="the batch is cancelled, and cannot be cancelled"):
            await client.messages.batches.cancel(made.id)

    assert early.value.body == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "the batch has not ended: its results are there when it has",
            "param": None,
            "code": "batch_not_ended",
        },
        "request_id": early.value.response.headers["request-id"],
    }
    assert (cancelling.processing_status, cancelling.cancel_initiated_at is not None) == ("canceling", True)
    assert {await world.there.queue.next_cancel() for _ in range(2)} == {second.request_id, third.request_id}
    assert done.request_counts.model_dump() == counts(succeeded=1, canceled=3)
    assert {name: result.type for name, result in results.items()} == {
        "a": "succeeded",
        **dict.fromkeys("bcd", "canceled"),
    }


async def test_when_a_day_is_over_a_batch_expires(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 1})
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked("a", model="nope"), asked("b"), asked("c")])
        submit = await world.there.queue.next_submit()
        assert submit.slo.deadline_s == 77_935.877  # the rung below a day

        world.clock.ahead_s = 86_401.0
        other = await client.messages.batches.create(requests=[asked("d")])  # whatever happens, it looks at its clock
        done = await ended(client, made)
        results = await results_of(client, done)
        await client.messages.batches.cancel(other.id)

    assert done.request_counts.model_dump() == counts(errored=1, expired=2)
    assert {name: result.type for name, result in results.items()} == {"a": "errored", "b": "expired", "c": "expired"}


async def test_a_revoked_key_is_the_error_of_what_has_no_answer(start_world: WorldFactory) -> None:
    keys = [{"key": "old", "tenant": "acme"}, {"key": "new", "tenant": "acme"}]
    world = await start_world(key="old", keys=keys, gateway={"drain_s": 0.1})
    async with client_of(world, "old") as client:
        made = await client.messages.batches.create(requests=[asked("a")])
        await world.there.queue.next_submit()
    world.config["keys"] = keys[1:]
    await world.there.stop()
    await world.open(None, "new")

    async with client_of(world, "new") as client:
        done = await ended(client, made)
        results = await results_of(client, done)

    assert done.request_counts.model_dump() == counts(errored=1)
    error = results["a"].error.error
    assert (error.type, error.message) == (
        *("authentication_error", "the API key that made this batch is not valid any more"),
    )


async def test_batches_are_listed_newest_first_by_pages_in_either_direction(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    async with client_of(world) as client:
        made = [(await client.messages.batches.create(requests=[asked("a")])).id for _ in range(4)]
        newest = made[::-1]
        batches = client.messages.batches
        first = await batches.list(limit=2)
        rest = await batches.list(limit=2, after_id=newest[1])
        before = await batches.list(limit=2, before_id=newest[3])
        top = await batches.list(limit=2, before_id=newest[1])
        every = [one.id async for one in batches.list(limit=1)]
        beta = await client.beta.messages.batches.list()
        with pytest.raises(anthropic.BadRequestError, match="no 'msgbatch_x' to go on behind") as unknown:
            await batches.list(after_id="msgbatch_x")
        with pytest.raises(anthropic.BadRequestError, match="do not go together"):
            await batches.list(after_id=newest[0], before_id=newest[1])

    assert ([one.id for one in first.data], first.has_more, first.first_id, first.last_id) == (
        *(newest[:2], True),
        *newest[:2],
    )
    assert ([one.id for one in rest.data], rest.has_more) == (newest[2:], False)
    assert ([one.id for one in before.data], before.has_more) == (newest[1:3], True)
    assert ([one.id for one in top.data], top.has_more) == (newest[:1], False)
    assert every == newest
    assert [one.id for one in beta.data] == newest
    assert isinstance(unknown.value.body, dict)
    assert unknown.value.body["error"]["param"] == "after_id"


async def test_what_is_removed_leaves_nothing_on_the_disk(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked("a"), asked("b", model="nope")])
        await ended(client, made)

        removed = await client.messages.batches.delete(made.id)

        with pytest.raises(anthropic.NotFoundError, match="there is no batch"):
            await client.messages.batches.retrieve(made.id)
    assert (removed.id, removed.type) == (made.id, "message_batch_deleted")
    assert [list((world.folder / name).iterdir()) for name in ("batches", "files", "uploads")] == [[], [], []]


async def test_batches_are_found_by_their_own_interface_and_their_own_tenant(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"), key="a", keys=TWO_TENANTS)
    theirs = await world.until(await world.batch(chat()))
    async with client_of(world, "a") as client, client_of(world, "b") as other:
        made = await client.messages.batches.create(requests=[asked("a")])
        await ended(client, made)
        assert [one.id for one in (await client.messages.batches.list()).data] == [made.id]
        assert (await other.messages.batches.list()).data == []
        for one, batch in ((other, made.id), (client, theirs.id)):
            for ask in (one.messages.batches.retrieve, one.messages.batches.cancel, one.messages.batches.delete):
                with pytest.raises(anthropic.NotFoundError, match="there is no batch"):
                    await ask(batch)

    assert [one.id for one in (await world.openai.batches.list()).data] == [theirs.id]
    with pytest.raises(openai.NotFoundError):
        await world.openai.batches.retrieve(made.id)
    hidden = [path.stem for path in (world.folder / "files").glob("*.json")]
    shown = {one.id for one in (await world.openai.files.list()).data}
    assert shown == {theirs.input_file_id, theirs.output_file_id}
    assert shown < set(hidden)
    for file in set(hidden) - shown:
        with pytest.raises(openai.NotFoundError):
            await world.openai.files.content(file)
        with pytest.raises(openai.BadRequestError, match="there is no file"):
            await world.openai.batches.create(
                input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"
            )


HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"{}", "requests", "missing_required_parameter"),
        (b"", None, "invalid_json"),
        (b"[]", "requests", "invalid_value"),
        (b'{"requests": 5}', "requests", "invalid_value"),
        (b'{"requests": []}', "requests", "invalid_value"),
        (b'{"requests": [5]}', "requests[0]", "invalid_value"),
        (b'{"requests": [{"custom_id": "a", "params": {}}', None, "invalid_json"),
        (b'{"requests": [{"custom_id": "a", "params": {}}], "x": 1}', None, "unknown_parameter"),
        ([{"custom_id": "a"}], "requests[0]", "invalid_value"),
        ([asked("a") | {"priority": 1}], "requests[0]", "invalid_value"),
        ([asked("a"), asked("b c")], "requests[1].custom_id", "invalid_value"),
        ([asked("a"), asked("b"), asked("a")], "requests[2].custom_id", "invalid_value"),
        ([asked("a", stream=True)], "requests[0].params.stream", "invalid_value"),
        ([asked(f"r{number}") for number in range(4)], "requests", "invalid_value"),
        ([asked("a", "x" * 5000)], "requests[0]", "request_entity_too_large"),
        (b'{"requests": [' + b" " * 30_000 + b"]}", None, "request_entity_too_large"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_by_its_field_and_leaves_nothing(
    start_world: WorldFactory, body: Any, param: str | None, code: str
) -> None:
    options = {"max_requests": 3, "max_file_bytes": 20_000}
    world = await start_world(options=options, gateway={"max_body_bytes": 4096})
    data = body if isinstance(body, bytes) else json.dumps({"requests": body}).encode()

    async with world.there.http.post("/v1/messages/batches", data=data) as response:
        refused = await response.json()

    assert response.status == (413 if code == "request_entity_too_large" else 400)
    assert (refused["type"], refused["error"]["param"], refused["error"]["code"]) == ("error", param, code)
    assert [list((world.folder / name).iterdir()) for name in ("batches", "files", "uploads")] == [[], [], []]


async def test_a_long_body_with_a_fault_at_its_begin_is_told_of_it(start_world: WorldFactory) -> None:
    world = await start_world()
    requests = [asked("no name"), *[asked(f"r{number}", "x" * 10_000) for number in range(1000)]]
    async with client_of(world) as client:
        with pytest.raises(anthropic.BadRequestError, match="has 1 to 64 letters"):
            await client.messages.batches.create(requests=requests)


async def test_requests_together_may_be_longer_than_a_body_elsewhere(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"), gateway={"max_body_bytes": 4096})
    requests = [asked(f"r{number}", "x" * 3000, model="nope") for number in range(200)]
    async with client_of(world) as client:
        done = await ended(client, await client.messages.batches.create(requests=requests))
        results = await results_of(client, done)

    assert done.request_counts.model_dump() == counts(errored=200)
    assert {one.error.error.code for one in results.values()} == {"model_not_found"}


async def test_a_full_disk_is_told_and_leaves_nothing(start_world: WorldFactory) -> None:
    world = await start_world()
    await world.end()
    life = await world.begin_process()
    async with client_of(world) as client:
        for max_bytes in (10, 200, 280):  # of the requests, of what is known of them, of the batch
            life.limit_files(max_bytes)
            with pytest.raises(anthropic.APIStatusError, match="the disk of the batch service takes no more") as full:
                await client.messages.batches.create(requests=[asked("a")])
            assert full.value.status_code == 503
        life.limit_files(resource.RLIM_INFINITY)
        assert (await client.messages.batches.list()).data == []
    assert [list((world.folder / name).iterdir()) for name in ("batches", "files", "uploads")] == [[], [], []]


async def test_encoded_bodies_and_forms_are_refused(start_world: WorldFactory) -> None:
    world = await start_world()
    for headers in ({"Content-Encoding": "gzip"}, {"Content-Type": "multipart/form-data; boundary=x"}):
        async with world.there.http.post("/v1/messages/batches", data=b"{}", headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (415, "unsupported_media_type")


async def test_a_tenant_has_so_many_open_batches_and_bytes_whatever_made_them(
    start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.batches.door.MAX_OPEN_BATCHES", 2)
    world = await start_world(options={"max_tenant_bytes": 2000})
    await world.batch(chat())
    async with client_of(world) as client:
        await client.messages.batches.create(requests=[asked("a")])
        with pytest.raises(anthropic.RateLimitError, match="has 2 batches that have not ended"):
            await client.messages.batches.create(requests=[asked("a")])
        monkeypatch.setattr("services.batches.door.MAX_OPEN_BATCHES", 9)
        with pytest.raises(anthropic.APIStatusError, match="the requests take more than") as refused:
            await client.messages.batches.create(requests=[asked("a", "x" * 2000)])
    assert refused.value.status_code == 413


async def test_a_key_may_not_ask_for_a_day_where_its_classes_are_slower(start_world: WorldFactory) -> None:
    slow = {"slow": {"deadline_s": 100_000.0}}
    keys = [{"key": "k", "tenant": "acme", "slo_classes": ["slow"]}]
    world = await start_world(key="k", keys=keys, slo_classes=slow, gateway={"default_slo": "slow"})
    async with client_of(world, "k") as client:
        with pytest.raises(anthropic.PermissionDeniedError, match="an SLO tighter than its classes"):
            await client.messages.batches.create(requests=[asked("a")])


async def test_a_batch_goes_on_behind_a_restart_and_its_counts_stay(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 1})
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked("a"), asked("b")])
        first = await world.there.queue.next_submit()
        await world.there.queue.send(first, 0, [*b"first"], "length")
        await world.there.queue.next_submit()
        await world.end()
        await world.begin()
        world.there.queue.answer = saying("later")
        done = await ended(client, made)
        await world.end()
        await world.begin()
        again = await client.messages.batches.retrieve(made.id)
        results = await results_of(client, done)

    assert again == done
    assert {name: one.message.content[0].text for name, one in results.items()} == {"a": "first", "b": "later"}


async def test_records_of_an_earlier_version_are_of_openai_s_interface(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    body = asked("a")["params"]
    done = await world.until(await world.batch(body, endpoint="/v1/messages"))
    record = json.loads((world.folder / "batches" / done.id / "batch.json").read_bytes())
    assert "interface" not in record, "as it always was"
    await world.end()
    await world.begin()

    assert [one.id for one in (await world.openai.batches.list()).data] == [done.id]
    async with client_of(world) as client:
        assert (await client.messages.batches.list()).data == []


async def test_input_goes_with_the_end_and_all_of_it_when_its_time_is_over(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"), options={"keep_s": 3600})
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked("a")])
        await ended(client, made)
        await world.end()
        await world.begin()
        assert list(await results_of(client, made)) == ["a"]
        (left,) = (world.folder / "files").glob("*.data")
        assert b"fine" in left.read_bytes(), "the answer, and not the request"

        await world.end()
        world.clock.ahead_s = 3700.0
        await world.begin()
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.batches.retrieve(made.id)
    assert list((world.folder / "files").iterdir()) == []


async def test_a_batch_whose_input_is_gone_ends_without_results(start_world: WorldFactory) -> None:
    world = await start_world()
    async with client_of(world) as client:
        made = await client.messages.batches.create(requests=[asked("a"), asked("b")])
        for _ in range(2):
            await world.there.queue.next_submit()
        await world.end()
        (data,) = (world.folder / "files").glob("*.data")
        data.unlink()
        await world.begin()
        done = await ended(client, made)
        with pytest.raises(anthropic.NotFoundError, match=r"the batch has no results: .*; send its requests again"):
            await client.get(f"/v1/messages/batches/{made.id}/results", cast_to=object)

    assert (done.request_counts.model_dump(), done.results_url) == (counts(errored=2), None)


async def test_where_there_is_no_service_its_paths_say_so(start_world: WorldFactory, start_gateway: Any) -> None:
    world = await start_world()
    await world.end()
    async with client_of(world) as client:
        with pytest.raises(anthropic.APIStatusError, match="the batch service cannot be reached") as away:
            await client.messages.batches.create(requests=[asked("a")])
        assert isinstance(away.value.body, dict)
        assert (away.value.status_code, away.value.body["error"]["type"]) == (503, "overloaded_error")
    gateway = await start_gateway()
    async with gateway.http.get("/v1/messages/batches") as response:
        refused = await response.json()
    assert (response.status, refused["type"], refused["error"]["code"]) == (404, "error", "batches_disabled")
