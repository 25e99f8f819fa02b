"""Batches from their file to their results, by OpenAI's own client, over sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from shared.messages.requests.slo import CUSTOM
from tests.gateway.batches.conftest import CHAT, WorldFactory, chat, texts
from tests.gateway.memory_queue import saying

TOO_LONG = chat(max_tokens=1000)


async def test_each_request_has_its_answer_or_its_error(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))

    made = await world.batch(chat("a"), TOO_LONG, chat("b"), chat("c", model="nope"), metadata={"for": "test"})
    done = await world.until(made)

    assert (made.status, made.object, made.completion_window, made.metadata) == (
        *("validating", "batch", "24h"),
        {"for": "test"},
    )
    assert (done.status, done.errors, done.endpoint, done.input_file_id) == (
        *("completed", None, CHAT),
        made.input_file_id,
    )
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 4, "completed": 2, "failed": 2}
    assert done.created_at + 86_400 == done.expires_at
    assert done.created_at <= (done.in_progress_at or 0) <= (done.finalizing_at or 0) <= (done.completed_at or 0)
    answers, errors = await world.lines(done.output_file_id), await world.lines(done.error_file_id)
    assert (sorted(answers), texts(answers)) == (["r0", "r2"], ["fine", "fine"])
    assert {name: (line["response"]["status_code"], line["error"]) for name, line in errors.items()} == {
        "r1": (400, None),
        "r3": (404, None),
    }
    assert errors["r1"]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert answers["r0"]["response"]["request_id"] == answers["r0"]["response"]["body"]["id"].removeprefix("chatcmpl-")
    usage = [line["response"]["body"]["usage"] for line in answers.values()]
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens) == (
        sum(one["prompt_tokens"] for one in usage),
        sum(one["completion_tokens"] for one in usage),
    )


@pytest.mark.parametrize(
    ("endpoint", "body", "answer"),
    [
        ("/v1/completions", {"model": "base", "prompt": "once", "max_tokens": 8}, ["choices", 0, "text"]),
        (
            "/v1/responses",
            {"model": "tiny", "input": "hello", "max_output_tokens": 8},
            ["output", 0, "content", 0, "text"],
        ),
        (
            "/v1/messages",
            {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8},
            ["content", 0, "text"],
        ),
    ],
)
async def test_every_interface_takes_batches(
    start_world: WorldFactory, endpoint: str, body: dict[str, Any], answer: list[str | int]
) -> None:
    world = await start_world(saying("fine"))

    done = await world.until(await world.batch(body, endpoint=endpoint))

    found: Any = (await world.lines(done.output_file_id))["r0"]["response"]["body"]
    for step in answer:
        found = found[step]
    assert found == "fine"
    assert done.usage is not None
    assert done.usage.output_tokens == 5  # four letters and the end


async def test_a_file_that_cannot_be_run_fails_with_all_its_problems(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": chat()}
    file = await world.upload(line, b"nonsense\n", line, line | {"custom_id": "b", "url": "/v1/completions"})

    failed = await world.until(
        await world.openai.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")
    )

    assert failed.status == "failed"
    assert failed.failed_at is not None
    assert failed.errors is not None
    assert [(one.code, one.line, one.param) for one in failed.errors.data or []] == [
        ("invalid_json_line", 2, None),
        ("duplicate_custom_id", 3, "custom_id"),
        ("mismatched_endpoint", 4, "url"),
    ]
    assert world.there.queue.submits.empty()


async def test_requests_are_promised_what_is_left_of_the_window_and_wait_for_so_long(start_world: WorldFactory) -> None:
    world = await start_world()

    await world.batch(chat(), chat(slo="interactive"), window="1h")
    submits = {submit.slo.name: submit for submit in [await world.there.queue.next_submit() for _ in range(2)]}

    assert sorted(submits) == [CUSTOM, "interactive"]
    assert submits[CUSTOM].slo.deadline_s == 3444.311  # the rung below an hour
    assert submits[CUSTOM].slo.ttft_s is None


async def test_what_is_out_is_bounded_and_a_busy_gateway_is_asked_again(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 3}, gateway={"max_inflight": 2})

    made = await world.batch(*[chat(f"{number}") for number in range(5)])
    for _ in range(5):
        submit = await world.there.queue.next_submit()
        await world.there.queue.send(submit, 0, [*b"ok"], "length")
    done = await world.until(made)

    assert texts(await world.lines(done.output_file_id)) == ["ok"] * 5
    assert world.registry.get_sample_value("treadle_batch_answers_total", {"verdict": "refused"}) == 1
    assert world.registry.get_sample_value("treadle_batch_answers_total", {"verdict": "completed"}) == 5


async def test_a_cancelled_batch_calls_its_requests_back_and_keeps_its_answers(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 2})
    made = await world.batch(*[chat(f"{number}") for number in range(4)])
    first, second = await world.there.queue.next_submit(), await world.there.queue.next_submit()
    await world.there.queue.send(first, 0, [*b"ok"], "length")
    await world.answered(made, 1)

    cancelling = await world.openai.batches.cancel(made.id)
    cancelled = await world.until(made)

    assert cancelling.status == "cancelling"
    assert cancelling.cancelling_at is not None
    gone = {await world.there.queue.next_cancel(), await world.there.queue.next_cancel()}
    assert gone == {second.request_id, (await world.there.queue.next_submit()).request_id}
    assert (cancelled.status, cancelled.cancelled_at is not None) == ("cancelled", True)
    assert list(await world.lines(cancelled.output_file_id)) == ["r0"]
    errors = await world.lines(cancelled.error_file_id)
    assert {name: line["error"]["code"] for name, line in errors.items()} == dict.fromkeys(
        ["r1", "r2", "r3"], "batch_cancelled"
    )
    with pytest.raises(openai.ConflictError, match="the batch is cancelled, and cannot be cancelled"):
        await world.openai.batches.cancel(made.id)


async def test_when_its_window_is_over_a_batch_expires(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 1})
    made = await world.batch(chat("a"), chat("b"), chat("c"), window="1h")
    first = await world.there.queue.next_submit()
    await world.there.queue.send(first, 0, [*b"ok"], "length")
    second = await world.there.queue.next_submit()

    world.clock.ahead_s = 3601.0
    other = await world.batch(chat("d"))  # whatever happens, it looks at its clock
    expired = await world.until(made)

    assert (expired.status, expired.expired_at is not None, expired.completed_at) == ("expired", True, None)
    assert await world.there.queue.next_cancel() == second.request_id
    assert list(await world.lines(expired.output_file_id)) == ["r0"]
    errors = await world.lines(expired.error_file_id)
    assert {name: line["error"]["code"] for name, line in errors.items()} == dict.fromkeys(
        ["r1", "r2"], "batch_expired"
    )
    await world.openai.batches.cancel(other.id)


async def test_batches_of_a_tenant_are_listed_newest_first_by_pages(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    names = [(await world.batch(chat())).id for _ in range(3)]

    first = await world.openai.batches.list(limit=2)
    rest = await world.openai.batches.list(limit=2, after=names[1])

    assert ([one.id for one in first.data], first.has_more) == ([names[2], names[1]], True)
    assert ([one.id for one in rest.data], rest.has_more) == ([names[0]], False)
    with pytest.raises(openai.BadRequestError, match="no 'batch_x' to go on behind"):
        await world.openai.batches.list(after="batch_x")


async def test_a_key_that_is_revoked_stops_its_batches(start_world: WorldFactory) -> None:
    keys = [{"key": "old", "tenant": "acme"}, {"key": "new", "tenant": "acme"}]
    world = await start_world(key="old", options={"max_inflight": 2}, keys=keys, gateway={"drain_s": 0.1})
    made = await world.batch(chat("a"), chat("b"), chat("c"))
    first, _ = await world.there.queue.next_submit(), await world.there.queue.next_submit()
    assert first.tenant == "acme"

    world.config["keys"] = keys[1:]
    await world.there.stop()
    await world.open(None, "new")
    cancelled = await world.until(made)

    assert cancelled.status == "cancelled"
    assert cancelled.errors is not None
    assert [one.code for one in cancelled.errors.data or []] == ["key_revoked"]
    codes = {line["error"]["code"] for line in (await world.lines(cancelled.error_file_id)).values()}
    assert (codes, world.there.queue.submits.empty()) == ({"key_revoked"}, True)


async def test_limits_of_a_key_are_those_of_its_own_calls(start_world: WorldFactory) -> None:
    limits = {"max_inflight": 1, "requests_per_minute": 1, "tokens_per_minute": 1}
    world = await start_world(saying("fine"), key="k", keys=[{"key": "k", "tenant": "acme", **limits}])

    done = await world.until(await world.batch(*[chat(f"{number}") for number in range(5)]))

    assert done.request_counts is not None
    assert done.request_counts.completed == 5
    assert world.registry.get_sample_value("treadle_batch_answers_total", {"verdict": "refused"}) == 0


async def test_a_key_may_not_ask_for_a_window_tighter_than_its_classes(start_world: WorldFactory) -> None:
    world = await start_world(
        saying("fine"), key="k", keys=[{"key": "k", "tenant": "acme", "slo_classes": ["batch-2"]}]
    )

    with pytest.raises(openai.PermissionDeniedError, match="an SLO tighter than its classes"):
        await world.batch(chat(), window="30m")
    assert (await world.until(await world.batch(chat(), window="2h"))).status == "completed"


async def test_a_tenant_has_a_bounded_number_of_open_batches(
    start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.batches.door.MAX_OPEN_BATCHES", 2)
    world = await start_world()
    for _ in range(2):
        await world.batch(chat())

    with pytest.raises(openai.RateLimitError, match="has 2 batches that have not ended") as refused:
        await world.batch(chat())

    assert refused.value.response.headers["Retry-After"] == "5"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"endpoint": CHAT}, "input_file_id", "missing_required_parameter"),
        ({"input_file_id": "file-1"}, "endpoint", "missing_required_parameter"),
        ({"input_file_id": "file-1", "endpoint": "/v1/images"}, "endpoint", "invalid_value"),
        ({"input_file_id": "file-1", "endpoint": CHAT}, "input_file_id", "file_not_found"),
        ({"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "59s"}, "completion_window", None),
        ({"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "8d"}, "completion_window", None),
        ({"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "soon"}, "completion_window", None),
        ({"input_file_id": "file-1", "endpoint": CHAT, "priority": 1}, "priority", "unknown_parameter"),
        (
            {
                "input_file_id": "file-1",
                "endpoint": CHAT,
                "output_expires_after": {"anchor": "created_at", "seconds": 1},
            },
            "output_expires_after.seconds",
            "invalid_value",
        ),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_by_its_field(
    start_world: WorldFactory, body: dict[str, Any], param: str, code: str | None
) -> None:
    world = await start_world()

    async with world.there.http.post("/v1/batches", json=body) as response:
        error = (await response.json())["error"]

    assert (response.status, error["param"], error["code"]) == (400, param, code or "invalid_value")


async def test_a_file_for_something_else_is_no_input(start_world: WorldFactory) -> None:
    world = await start_world()
    file = await world.upload({"any": "thing"}, purpose="user_data")

    with pytest.raises(openai.BadRequestError, match="purpose is not 'batch'"):
        await world.openai.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")


async def test_who_only_claims_to_be_a_batch_is_none(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"), key="k", keys=[{"key": "k", "tenant": "acme"}])
    headers = {"x-treadle-batch-token": "guess", "x-treadle-batch-key": "", "x-treadle-batch-deadline": "5"}

    async with world.there.http.post(CHAT, json=chat(), headers=headers) as response:
        error = (await response.json())["error"]

    assert (response.status, error["message"]) == (503, "the secret of the batch service is not known here")


async def test_without_the_service_its_paths_say_so(start_world: WorldFactory) -> None:
    world = await start_world()
    await world.end()

    with pytest.raises(openai.InternalServerError, match="the batch service cannot be reached") as refused:
        await world.openai.batches.list()
    assert (refused.value.status_code, refused.value.response.headers["Retry-After"]) == (503, "5")


async def test_a_cluster_without_batches_says_so(start_gateway: Any) -> None:
    gateway = await start_gateway()

    for path in ("/v1/files", "/v1/batches", "/v1/batches/x/cancel", "/v1/files/x/content"):
        async with gateway.http.get(path) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, "batches_disabled")


async def test_results_are_kept_for_as_long_as_was_asked(start_world: WorldFactory, tmp_path: Path) -> None:
    world = await start_world(saying("fine"))

    done = await world.until(await world.batch(chat(), output_expires_after={"anchor": "created_at", "seconds": 7200}))

    (record,) = [
        json.loads(path.read_bytes())
        for path in (tmp_path / "batches" / "files").glob("*.json")
        if path.stem == done.output_file_id
    ]
    assert record["expires_s"] == record["created_s"] + 7200
