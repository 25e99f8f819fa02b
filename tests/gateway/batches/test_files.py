"""Files: sent, shown, listed, read, removed; and all that a form can be instead of one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from yarl import URL

from tests.gateway.batches.conftest import CHAT, BatchWorld, WorldFactory, chat

TWO_TENANTS = [{"key": "a", "tenant": "acme"}, {"key": "b", "tenant": "beta"}]


async def test_a_file_comes_back_as_it_was_sent_until_it_is_removed(start_world: WorldFactory) -> None:
    world = await start_world()
    data = bytes(range(256)) * 5000  # 1.28 MB, no text

    made = await world.openai.files.create(file=("any.bin", data), purpose="user_data")
    shown = await world.openai.files.retrieve(made.id)
    content = await world.openai.files.content(made.id)
    removed = await world.openai.files.delete(made.id)

    assert (made.object, made.bytes, made.filename, made.purpose, made.status) == (
        *("file", len(data), "any.bin", "user_data", "processed"),
    )
    assert (shown, content.content) == (made, data)
    assert (removed.id, removed.deleted, removed.object) == (made.id, True, "file")
    for ask in (world.openai.files.retrieve, world.openai.files.content, world.openai.files.delete):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            await ask(made.id)
    assert list((world.folder / "files").iterdir()) == []


async def test_files_and_batches_of_another_tenant_are_not_there(start_world: WorldFactory) -> None:
    world = await start_world(key="a", keys=TWO_TENANTS)
    batch = await world.batch(chat())
    async with AsyncOpenAI(base_url=f"{world.there.url}/v1", api_key="b", max_retries=0) as other:
        assert (await other.files.list()).data == []
        assert (await other.batches.list()).data == []
        for ask in (other.files.retrieve, other.files.content, other.files.delete):
            with pytest.raises(openai.NotFoundError):
                await ask(batch.input_file_id)
        for ask_batch in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await ask_batch(batch.id)
        with pytest.raises(openai.BadRequestError, match="there is no file"):
            await other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h")


@pytest.mark.parametrize("path", ["files/%2e%2e", "files/%2e", "files/%2e%2e/content", "batches/%2e%2e"])
async def test_a_name_is_no_way_to_another_place_of_the_service(start_world: WorldFactory, path: str) -> None:
    world = await start_world()
    async with world.there.http.get(URL(f"{world.there.url}/v1/{path}", encoded=True)) as response:
        assert response.status == 404, await response.text()


async def test_files_are_listed_by_pages_in_either_order(start_world: WorldFactory) -> None:
    world = await start_world()
    names = [await world.upload({"n": number}) for number in range(3)]
    other = await world.upload({"n": 3}, purpose="user_data")

    newest = await world.openai.files.list(limit=2)
    oldest = await world.openai.files.list(limit=2, order="asc", after=names[0])
    batches = await world.openai.files.list(purpose="batch")

    assert ([one.id for one in newest.data], newest.has_more) == ([other, names[2]], True)
    assert ([one.id for one in oldest.data], oldest.has_more) == ([names[1], names[2]], True)
    assert [one.id for one in batches.data] == [names[2], names[1], names[0]]


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("purpose=fun", "purpose"), ("a=b", "a")],
)
async def test_a_query_that_cannot_be_is_refused_by_its_name(start_world: WorldFactory, query: str, param: str) -> None:
    world = await start_world()

    async with world.there.http.get(f"/v1/files?{query}") as response:
        error = (await response.json())["error"]

    assert (response.status, error["param"]) == (400, param)


def form(**fields: Any) -> aiohttp.FormData:
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        made.add_field(name, value, filename="x.jsonl" if isinstance(value, bytes) else None)
    return made


def expiring(anchor: str | None, seconds: str) -> aiohttp.FormData:
    made = form(file=b"{}", purpose="batch")
    if anchor is not None:
        made.add_field("expires_after[anchor]", anchor)
    made.add_field("expires_after[seconds]", seconds)
    return made


@pytest.mark.parametrize(
    ("sent", "status", "code", "param"),
    [
        (form(purpose="batch"), 400, "missing_required_parameter", "file"),
        (form(file=b"{}"), 400, "missing_required_parameter", "purpose"),
        (form(file=b"{}", purpose="fine-tune"), 400, "invalid_value", "purpose"),
        (form(file=b"{}", purpose="batch", colour="red"), 400, "unknown_parameter", "colour"),
        (form(file=b"{}", purpose="x" * 600), 400, "invalid_value", "purpose"),
        (expiring("created_at", "10"), 400, "invalid_value", "expires_after[seconds]"),
        (expiring("yesterday", "7200"), 400, "invalid_value", "expires_after[anchor]"),
        (expiring(None, "7200"), 400, "invalid_value", "expires_after[anchor]"),
        (b"--x\r\nnonsense", 400, "invalid_form", None),
        ({"purpose": "batch"}, 415, "unsupported_media_type", None),
    ],
)
async def test_a_form_that_is_none_is_refused_and_leaves_nothing(
    start_world: WorldFactory, sent: Any, status: int, code: str, param: str | None
) -> None:
    world = await start_world()
    headers = {"Content-Type": "multipart/form-data; boundary=x"} if isinstance(sent, bytes) else {}

    async with world.there.http.post("/v1/files", data=sent, headers=headers) as response:
        error = (await response.json())["error"]

    assert (response.status, error["code"], error["param"]) == (status, code, param)
    assert left(world) == []


async def until(is_so: Callable[[], bool]) -> None:
    """Of the service's folder, which tells nobody that it has changed."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def left(world: BatchWorld) -> list[Path]:
    return [path for name in ("files", "uploads") for path in (world.folder / name).iterdir()]


async def test_too_large_a_file_is_refused_whether_its_length_is_told_or_not(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_file_bytes": 100_000})

    async def pieces() -> Any:
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        yield head
        for _ in range(40):
            yield b"x" * 10_000

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answers = []
    for body in (form(file=b"x" * 100_001, purpose="batch"), form(file=b"x" * 300_000, purpose="batch"), pieces()):
        async with world.there.http.post(
            "/v1/files", data=body, headers=headers if body.__class__.__name__ == "async_generator" else {}
        ) as response:
            answers.append((response.status, (await response.json())["error"]["code"]))

    assert answers == [(413, "file_too_large")] * 3
    await until(lambda: not left(world))  # it learns of the end of a form that was cut


async def test_a_tenant_has_a_bounded_room(start_world: WorldFactory) -> None:
    world = await start_world(options={"max_tenant_bytes": 3000})
    await world.openai.files.create(file=("a", b"x" * 2000), purpose="batch")

    with pytest.raises(openai.APIStatusError) as too_large:
        await world.openai.files.create(file=("b", b"x" * 1001), purpose="batch")
    await world.openai.files.create(file=("c", b"x" * 1000), purpose="batch")
    with pytest.raises(openai.PermissionDeniedError, match="take all the room that they may") as full:
        await world.openai.files.create(file=("d", b"x"), purpose="batch")

    assert (too_large.value.status_code, full.value.code) == (413, "storage_limit_exceeded")


async def test_a_client_that_leaves_amid_a_file_leaves_nothing(start_world: WorldFactory) -> None:
    world = await start_world()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.config["gateway"]["port"])
    kind = b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 9000\r\n"
    head = b"POST /v1/files HTTP/1.1\r\nHost: x\r\n" + kind
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"x" * 1000
    writer.write(head + b"\r\n" + part)
    await writer.drain()
    await until(lambda: bool(left(world)))

    writer.close()

    await until(lambda: not left(world))
    assert await reader.read() == b""


@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionHeader")
@pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionParam")
async def test_whatever_a_form_is_it_is_taken_or_refused(start_world: WorldFactory) -> None:
    """Forms with bytes changed, cut and repeated at random places; seeded."""
    world, chance = await start_world(), random.Random(7)
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    good = part % (b"purpose", b"", b"batch") + part % (b"file", b'; filename="x"', b"{}" * 20) + b"--b--\r\n"
    seen = set()
    for _ in range(300):
        sent = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            begin, size = chance.randrange(len(sent)), chance.randint(0, 12)
            sent[begin : begin + chance.randint(0, 12)] = chance.choice([chance.randbytes(size), sent[:size], b"\r\n"])
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        async with world.there.http.post("/v1/files", data=bytes(sent), headers=headers) as response:
            seen.add(response.status)
            await response.read()

    assert seen == {200, 400}
    await until(lambda: not list((world.folder / "uploads").iterdir()))


async def test_a_download_that_the_service_cuts_is_no_file(start_world: WorldFactory) -> None:
    world = await start_world()
    made = await world.openai.files.create(file=("large", b"x" * (32 << 20)), purpose="user_data")

    async with world.there.http.get(f"/v1/files/{made.id}/content") as response:
        assert response.status == 200
        await response.content.readexactly(1)
        await world.end()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_few_files_are_on_their_way_at_a_time(start_world: WorldFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.batches.transfers.MAX_OF_TENANT", 0)
    world = await start_world()

    with pytest.raises(openai.RateLimitError, match="too many files are on their way"):
        await world.upload({})


async def test_a_file_that_a_batch_reads_cannot_be_removed(start_world: WorldFactory) -> None:
    world = await start_world()
    made = await world.batch(chat())

    with pytest.raises(openai.ConflictError, match="cancel it first"):
        await world.openai.files.delete(made.input_file_id)
    await world.openai.batches.cancel(made.id)
    await world.until(made)
    await world.openai.files.delete(made.input_file_id)


async def test_files_are_there_until_their_time_is_over(start_world: WorldFactory) -> None:
    world = await start_world()
    mine = await world.openai.files.create(
        file=("a", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    kept = await world.upload({})
    assert mine.expires_at == mine.created_at + 3600

    await world.end()
    world.clock.ahead_s = 3601.0
    await world.begin()

    assert [one.id for one in (await world.openai.files.list()).data] == [kept]
