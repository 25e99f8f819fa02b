"""Each kind of process does its work as its own user of Redis, and can do nothing that is not its work."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from redis.exceptions import RedisError

from gateway.inflight.kept_responses import KeptResponse, KeptResponses
from gateway.kept.background import Background, BackgroundRequest, Claim, Standing
from gateway.kept.conversations import ConversationRecord, ConversationStore
from gateway.tenants.kept_rates import KeptRates
from gateway.tenants.rates import DueRate
from gateway.tenants.shared_bucket import SharedBucket, Telling
from shared.bus import scripts, streams
from shared.bus.bus import connect
from shared.bus.redis_roles import ROLES, acl_file
from shared.messages.codec import FIELD
from tests.redis.replicated import HOST, Server
from tests.redis.server_version import needs_waitaof
from tests.redis.waiting import until

pytestmark = [pytest.mark.redis, needs_waitaof]

REFUSAL = r"(?i)no permission|NOPERM|permissions"
NAMES = [role.name for role in ROLES]
TOLD = Telling(taken=1, level=59, keeps=0, wants_advance=True)
STATE = streams.state("queue-manager")


def password(role: str) -> str:
    return f"password-of-{role}"


def url(server: Server, role: str) -> str:
    return f"redis://{role}:{password(role)}@{HOST}:{server.port}/0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis whose users are the roles, with hashed passwords as the chart has them."""
    folder = tmp_path_factory.mktemp("roles")
    file = folder / "users.acl"
    file.write_text(acl_file(lambda role: "#" + hashlib.sha256(password(role).encode()).hexdigest()))
    found = Server(folder, "server", ["--aclfile", str(file), "--protected-mode", "no"])
    found.start()
    try:
        asyncio.run(until(found.answers))
        yield found
    finally:
        found.kill()


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(RedisError, match=REFUSAL):
        yield


@pytest.mark.parametrize("role", [*NAMES, "default"])
async def test_nobody_may_change_the_server_or_list_what_it_has(server: Server, role: str) -> None:
    async with server.client() if role == "default" else connect(url(server, role)) as redis:
        assert await redis.ping()
        for command in (
            "FLUSHALL",
            "FLUSHDB",
            "KEYS *",
            "CONFIG SET maxmemory 1",
            "SHUTDOWN",
            "SAVE",
            "MONITOR",
        ):
            with refused():
                await redis.execute_command(*command.split())  # type: ignore[no-untyped-call]
        for command in (
            "ACL LIST",
            "REPLICAOF NO ONE",
            "EVAL return(1) 0",
            "SCRIPT FLUSH",
            "SUBSCRIBE x",
            "SWAPDB 0 1",
        ):
            with refused():
                await redis.execute_command(*command.split())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("role", [name for name in NAMES if name != "queue-manager"])
async def test_the_state_of_the_queue_is_its_own(server: Server, role: str) -> None:
    async with connect(url(server, "queue-manager")) as owner:
        await owner.hset(STATE, "state", "x")
        await owner.set(streams.lease("queue-manager"), "q#1")
    async with connect(url(server, role)) as redis:
        if role != "operator":
            for read in (redis.hgetall(STATE), redis.hget(STATE, "state"), redis.get(streams.lease("queue-manager"))):
                with refused():
                    await read
        for write in (
            redis.hset(STATE, "state", "y"),
            redis.delete(STATE),
            redis.set(streams.lease("queue-manager"), "me#2"),
            redis.incr(streams.fence("queue-manager")),
        ):
            with refused():
                await write


async def test_a_script_may_do_no_more_than_its_caller(server: Server) -> None:
    read = "return redis.call('HGETALL', KEYS[1])"
    hidden = f"return redis.call('HGETALL', '{STATE}')"
    keys_of_all = "return redis.call('KEYS', '*')"
    async with connect(url(server, "gateway")) as redis:
        for text, keys in ((read, [STATE]), (hidden, []), (keys_of_all, [])):
            with refused():
                await redis.register_script(text)(keys=keys)
        add = "return redis.call('XADD', KEYS[1], '*', 'm', 'x')"
        assert await redis.register_script(add)(keys=[streams.QUEUE]), "declared as read and written, and only written"


async def test_a_gateway_adds_to_the_queue_and_reads_nothing_but_its_tokens(server: Server) -> None:
    async with connect(url(server, "gateway")) as redis:
        await redis.xadd(streams.QUEUE, {FIELD: b"x"})
        await redis.set(streams.payload("r"), b"x", ex=60)
        for read in (
            redis.xrange(streams.QUEUE),
            redis.xread({streams.QUEUE: "0"}),
            redis.get(streams.payload("r")),
            redis.xrange(streams.group("g")),
            redis.xrange(streams.node_inbox("n")),
            redis.xrange(streams.DEAD_LETTER),
            redis.xadd(streams.node_inbox("n"), {FIELD: b"x"}),
            redis.xadd(streams.group("g"), {FIELD: b"x"}),
            redis.xadd("another", {FIELD: b"x"}),
        ):
            with refused():
                await read
        await redis.xadd(streams.tokens("g"), {FIELD: b"x"})
        assert await redis.xlen(streams.tokens("g")) == 1


async def test_the_kv_manager_is_asked_by_gateways_and_answers_the_queue_manager(server: Server) -> None:
    async with connect(url(server, "gateway")) as gateway:
        submit = gateway.register_script(scripts.SUBMIT)
        keys = [streams.payload("r"), streams.QUEUE, streams.KV]
        args: list[bytes | int] = [b"x", 60, b"x", b"x", streams.MAX_KV_LOG]
        assert await submit(keys=keys, args=args) is None
        with refused():
            await gateway.xrange(streams.KV)
    async with connect(url(server, "kv-manager")) as service:
        assert await service.xlen(streams.KV) == 1
        await service.xadd(streams.QUEUE, {FIELD: b"x"})
        await service.xadd(streams.node_inbox("n"), {FIELD: b"x"})
        for read in (service.xrange(streams.QUEUE), service.xrange(streams.node_inbox("n"))):
            with refused():
                await read


async def test_gateways_alone_know_what_keys_have_left(server: Server) -> None:
    bucket = streams.rate("requests", 60, "01")
    async with connect(url(server, "gateway")) as gateway:
        [told] = await KeptRates(gateway, "g").tell([(DueRate("requests", b"\1", SharedBucket(60, 0.0)), TOLD)])
        assert told.free == 59
    for role in ("node", "queue-manager", "scheduler", "kv-manager", "batches"):
        async with connect(url(server, role)) as redis:
            with refused():
                await redis.get(bucket)


async def test_gateways_alone_know_which_answers_are_kept(server: Server) -> None:
    answer = KeptResponse(tenant="a", num_input=0, items=[], answer=msgspec.Raw(b"{}"))
    async with connect(url(server, "gateway")) as gateway:
        kept = KeptResponses(gateway, keep_s=60, max_bytes=100)
        assert await kept.keep("resp_1", answer)
        assert await kept.keep("resp_2", answer), "the first makes room"
        assert await kept.find("a", "resp_1") is None
        assert await kept.find("a", "resp_2") is not None
        assert await kept.forget("resp_2")
        await follow_one(Background(gateway, "one", 60, 1000))
        conversations = ConversationStore(gateway, "one", 60, 1000)
        await conversations.make("conv_1", ConversationRecord("a", 1))
        locked = await conversations.lock("a", "conv_1", "call_1")
        assert locked is not None
        assert await conversations.write("conv_1", "call_1", locked[0])
        await conversations.unlock("conv_1", "call_1")
        assert await conversations.forget("conv_1")
    for role in ("node", "queue-manager", "scheduler", "kv-manager", "batches"):
        async with connect(url(server, role)) as redis:
            with refused():
                await redis.get(streams.response("resp_2"))


async def follow_one(background: Background) -> None:
    """Each script once, but for those whose commands others have too."""
    request = BackgroundRequest("a", "", b"{}", b"[]", 7, 1.0, b"{}")
    await background.sign([])
    for response_id in ("resp_3", "resp_4", "resp_5"):
        assert await background.create(Claim(response_id, 0, request, 2, b"log")) == "ok"
    assert len((await background.look([]))[1]) == 3
    assert await background.claim("resp_3") is not None
    assert await background.append("resp_3", 3, b"ger", 4) is Standing.OK
    assert await background.find("a", "resp_3") is not None
    assert await background.read("resp_3", 0) == (b"logger", True)
    assert await background.end("resp_3", 6, b"!", b"{}") is Standing.OK
    assert await background.cancel("resp_4", 3, b"!", b"{}") is Standing.OK
    assert await background.remove("resp_5")
    assert await background.sign(["resp_4", "resp_5"]) == [Standing.ENDED] * 2
    await background.strike("one")


async def test_a_node_reads_payloads_and_changes_none(server: Server) -> None:
    async with connect(url(server, "gateway")) as gateway:
        await gateway.set(streams.payload("r"), b"x")
    async with connect(url(server, "node")) as redis:
        assert await redis.get(streams.payload("r")) == b"x"
        for write in (
            redis.set(streams.payload("r"), b"y"),
            redis.delete(streams.payload("r")),
            redis.xrange(streams.QUEUE),
            redis.xrange(streams.tokens("g")),
            redis.xtrim(streams.lease("queue-manager"), 0),
        ):
            with refused():
                await write


async def test_an_operator_reads_all_and_changes_none_but_dead_letters(server: Server) -> None:
    async with connect(url(server, "kv-manager")) as service:
        letter = await service.xadd(streams.DEAD_LETTER, {FIELD: b"x"})
        await service.hset(streams.state("kv-manager"), "id", "0-0")
    async with connect(url(server, "operator")) as redis:
        assert await redis.hgetall(streams.state("kv-manager")) == {b"id": b"0-0"}
        assert await redis.xdel(streams.DEAD_LETTER, letter) == 1
        assert [key async for key in redis.scan_iter("treadle:*")]
        with refused():
            await redis.xadd(streams.QUEUE, {FIELD: b"x"})


async def test_nobody_without_a_name_reads_anything(server: Server) -> None:
    async with server.client() as redis:
        with refused():
            await redis.xrange(streams.QUEUE)


@pytest.mark.parametrize("role", NAMES)
async def test_a_wrong_password_is_refused(server: Server, role: str) -> None:
    async with connect(f"redis://{role}:wrong@{HOST}:{server.port}/0") as redis:
        with pytest.raises(RedisError, match="invalid username-password"):
            await redis.ping()
