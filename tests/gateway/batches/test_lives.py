"""When the service, a gateway or the disk fails: nothing is lost, and no answer is there twice."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path

import openai
import pytest
from aiohttp import web

from gateway.batches.service import BatchService
from services.batches.store.folder import BatchFolder, BatchFolderError
from shared.bus import streams
from shared.config.addresses import batches_url
from shared.config.config import ClusterConfig
from shared.messages.batches.batches import NewBatch
from shared.service.admin.admin import listen
from tests.gateway.batches.conftest import CHAT, WorldFactory, chat, texts
from tests.gateway.memory_queue import saying


async def test_after_a_restart_what_has_an_answer_is_not_asked_again(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 2})
    made = await world.batch(*[chat(f"{number}") for number in range(4)])
    first, second = await world.there.queue.next_submit(), await world.there.queue.next_submit()
    await world.there.queue.send(first, 0, [*b"first"], "length")
    await world.answered(made, 1)

    await world.end()
    assert await world.there.queue.next_cancel()  # its client has left
    await world.begin()
    world.there.queue.answer = saying("later")
    done = await world.until(made)

    assert second.request_id not in world.there.queue.payloads
    assert texts(await world.lines(done.output_file_id)) == ["first", "later", "later", "later"]
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 4, "completed": 4, "failed": 0}


async def test_a_line_that_a_crash_cut_is_asked_again(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 1})
    made = await world.batch(chat("a"), chat("b"))
    first = await world.there.queue.next_submit()
    await world.there.queue.send(first, 0, [*b"first"], "length")
    await world.answered(made, 1)
    await world.end()
    output = world.folder / "batches" / made.id / "output.jsonl"
    output.write_bytes(output.read_bytes()[:-20])

    await world.begin()
    world.there.queue.answer = saying("again")
    done = await world.until(made)

    assert texts(await world.lines(done.output_file_id)) == ["again", "again"]


@pytest.mark.parametrize("is_moved", [False, True])
async def test_a_crash_while_results_become_files_is_taken_up_again(start_world: WorldFactory, is_moved: bool) -> None:
    world = await start_world(saying("fine"))
    done = await world.until(await world.batch(chat("a"), chat("b", model="nope")))
    await world.end()
    _undo_end(world.folder, done.id, done.output_file_id or "", is_moved=is_moved)

    await world.begin()
    again = await world.until(done)

    assert (again.output_file_id, again.error_file_id) == (done.output_file_id, done.error_file_id)
    assert texts(await world.lines(again.output_file_id)) == ["fine"]
    assert list(await world.lines(again.error_file_id)) == ["r1"]


def _undo_end(folder: Path, batch: str, output: str, *, is_moved: bool) -> None:
    """As a crash would have left it behind the record that names the files."""
    path = folder / "batches" / batch / "batch.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | {"status": "finalizing", "completed_s": None}))
    if not is_moved:
        (folder / "files" / f"{output}.data").rename(folder / "batches" / batch / "output.jsonl")


async def test_a_damaged_result_file_fails_its_batch_alone(start_world: WorldFactory) -> None:
    world = await start_world()
    made = await world.batch(chat("a"))
    other = await world.batch(chat("b"))
    for _ in range(2):
        await world.there.queue.next_submit()
    await world.end()
    (world.folder / "batches" / made.id / "output.jsonl").write_bytes(b"something else\n")

    await world.begin()
    world.there.queue.answer = saying("fine")

    failed = await world.until(made)
    assert failed.errors is not None
    assert (failed.status, [one.code for one in failed.errors.data or []]) == ("failed", ["results_damaged"])
    assert (await world.until(other)).status == "completed"


async def test_requests_wait_for_a_gateway_that_comes_back(start_world: WorldFactory) -> None:
    world = await start_world(gateway={"drain_s": 0.1})
    made = await world.batch(chat("a"), chat("b"))
    for _ in range(2):
        await world.there.queue.next_submit()

    await world.there.stop()
    await world.open(saying("fine"), "none")
    done = await world.until(made)

    assert texts(await world.lines(done.output_file_id)) == ["fine", "fine"]


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b'{"no": "gateway"}'])
async def test_an_answer_that_no_gateway_wrote_is_none(start_world: WorldFactory, body: bytes) -> None:
    """Something else listens where gateways should: its 200 is no answer, and the request is sent again."""
    world = await start_world(saying("fine"), gateway={"drain_s": 0.1})
    await world.end()
    await world.begin()
    file = await world.upload({"custom_id": "r0", "method": "POST", "url": CHAT, "body": chat()})
    await world.there.stop()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    other = web.Application()
    other.router.add_route("*", "/{path:.*}", answer)
    runner = await listen(other, "127.0.0.1", world.config["gateway"]["port"])
    asked = NewBatch(key_id="", endpoint=CHAT, input_file_id=file, window="1h", window_s=3600)
    service = BatchService(batches_url(ClusterConfig.model_validate(world.config)), world.token())
    made = await service.make_batch("default", asked)
    async with asyncio.timeout(10):
        while not world.registry.get_sample_value("treadle_batch_answers_total", {"verdict": "refused"}):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await service.close()
    await runner.cleanup()

    await world.open(saying("fine"), "none")
    async with asyncio.timeout(30):
        while (done := await world.openai.batches.retrieve(made.id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert texts(await world.lines(done.output_file_id)) == ["fine"]


async def test_a_redis_that_was_emptied_learns_the_secret_again(
    start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.batches.token.TELL_S", 0.05)
    world = await start_world(saying("fine"))
    await world.redis.delete(streams.BATCH_TOKEN)

    async with asyncio.timeout(10):
        while await world.redis.get(streams.BATCH_TOKEN) is None:  # noqa: ASYNC110 (Redis tells nobody)
            await asyncio.sleep(0.02)

    assert (await world.until(await world.batch(chat()))).status == "completed"


async def test_a_gateway_learns_the_secret_of_another_folder(
    start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.batches.token.READ_AGAIN_S", 0.0)
    world = await start_world(saying("fine"))
    await world.upload({})
    await world.end()
    (world.folder / "token").unlink()
    await world.begin()

    with pytest.raises(openai.InternalServerError, match="the batch service cannot be reached"):
        await world.upload({})
    assert (await world.until(await world.batch(chat()))).status == "completed"


async def test_answers_wait_in_memory_for_a_full_disk(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_inflight": 2})
    await world.end()
    life = await world.begin_process()
    made = await world.batch(*[chat(f"{number}") for number in range(3)])
    first, second = await world.there.queue.next_submit(), await world.there.queue.next_submit()

    life.limit_files(100)
    await world.there.queue.send(first, 0, [*b"one"], "length")
    await world.there.queue.send(second, 0, [*b"two"], "length")
    await world.answered(made, 2)
    with pytest.raises(openai.InternalServerError, match="the disk of the batch service takes no more"):
        await world.batch(chat())
    assert await life.metric("treadle_batch_disk_full") == 1
    assert world.there.queue.submits.empty()
    assert (world.folder / "batches" / made.id / "output.jsonl").read_bytes() == b""

    life.limit_files(resource.RLIM_INFINITY)
    third = await world.there.queue.next_submit()
    await world.there.queue.send(third, 0, [*b"three"], "length")
    done = await world.until(made)

    assert texts(await world.lines(done.output_file_id)) == ["one", "two", "three"]


async def test_killed_at_any_moment_it_goes_on_where_it_was(start_world: WorldFactory) -> None:
    """Six lives, each ended by SIGKILL so and so long after it was ready; 60 requests, two at a time."""
    world = await start_world(options={"max_inflight": 2})
    await world.end()
    world.there.queue.answer = saying("fine")
    life = await world.begin_process()
    made = await world.batch(*[chat(f"{number}", model="nope" if number % 7 == 0 else "tiny") for number in range(60)])

    for number in range(6):
        await asyncio.sleep(0.008 * number)  # where it is killed, and not what is waited for
        life.kill()
        life = await world.begin_process()
    done = await world.until(made)

    answers, errors = await world.lines(done.output_file_id), await world.lines(done.error_file_id)
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 60, "completed": 51, "failed": 9}
    assert {*answers, *errors} == {f"r{number}" for number in range(60)}
    assert (len(answers), len(errors)) == (51, 9)


async def test_records_that_cannot_be_read_are_left_and_the_others_served(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    done = await world.until(await world.batch(chat()))
    file = await world.upload({})
    await world.end()
    broken = [world.folder / "batches" / done.id / "batch.json", world.folder / "files" / f"{file}.json"]
    for path in broken:
        path.write_bytes(b"{")

    await world.begin()

    assert [one.id for one in (await world.openai.batches.list()).data] == []
    assert {one.id for one in (await world.openai.files.list()).data} == {done.input_file_id, done.output_file_id}
    assert [path.read_bytes() for path in broken] == [b"{", b"{"]


async def test_an_input_that_is_gone_fails_its_batch_alone(start_world: WorldFactory) -> None:
    world = await start_world()
    made, other = await world.batch(chat("a")), await world.batch(chat("b"))
    for _ in range(2):
        await world.there.queue.next_submit()
    await world.end()
    (world.folder / "files" / f"{made.input_file_id}.data").unlink()

    await world.begin()
    world.there.queue.answer = saying("fine")

    failed = await world.until(made)
    assert failed.errors is not None
    assert (failed.status, [one.code for one in failed.errors.data or []]) == ("failed", ["file_unreadable"])
    assert (await world.until(other)).status == "completed"


async def test_of_batches_that_have_ended_a_bounded_number_is_remembered(
    start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.batches.keeping.MAX_ENDED", 1)
    world = await start_world(saying("fine"))
    old, new = [await world.until(await world.batch(chat())) for _ in range(2)]
    await world.end()

    await world.begin()

    assert [one.id for one in (await world.openai.batches.list()).data] == [new.id]
    assert old.output_file_id in [one.id for one in (await world.openai.files.list()).data], "its results are kept"


async def test_what_one_second_made_is_listed_in_its_order_behind_a_restart(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"))
    files = [await world.upload({}) for _ in range(5)]
    batches = [(await world.batch(chat())).id for _ in range(5)]
    await world.end()

    await world.begin()

    assert [one.id for one in (await world.openai.batches.list()).data] == batches[::-1]
    found = [one.id for one in (await world.openai.files.list(order="asc")).data]
    assert found[: len(files)] == files


async def test_batches_that_ended_long_ago_are_forgotten_and_their_files_too(start_world: WorldFactory) -> None:
    world = await start_world(saying("fine"), options={"keep_s": 3600})
    done = await world.until(await world.batch(chat()))
    await world.end()

    world.clock.ahead_s = 3700.0
    await world.begin()

    with pytest.raises(openai.NotFoundError):
        await world.openai.batches.retrieve(done.id)
    assert [one.id for one in (await world.openai.files.list()).data] == [done.input_file_id]


async def test_one_process_at_a_time_has_the_folder(start_world: WorldFactory) -> None:
    world = await start_world()

    coming = world.folder / "uploads" / "coming"
    coming.write_bytes(b"half")

    with pytest.raises(BatchFolderError, match="another batch service uses this folder"):
        BatchFolder(world.folder).claim()
    assert coming.read_bytes() == b"half", "who may not have it leaves it alone"
    await world.end()
    other = BatchFolder(world.folder)
    other.claim()
    other.release()
    await world.begin()
