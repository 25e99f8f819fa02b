"""Redis as the processes with soft state use it (gateways, node agents): a connection, and a reader that starts now."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import Counter
from redis.asyncio import Redis, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from shared.bus import scripts
from shared.bus.held_connection import HeldConnection
from shared.bus.master import BySentinels, MasterFinder, MasterPool, NoMasterError, OneOf, OnlyOne, PlacedPool
from shared.bus.read_marks import BEGINNING, MAX_MARKS, ReadMarks
from shared.bus.redis_address import RedisAddress, parse_address
from shared.bus.streams import DEAD_LETTER, MAX_DEAD_LETTERS, MAX_LETTER_BYTES
from shared.errors import OperatorError
from shared.messages.codec import FIELD, UndecodableError, decode_entry
from shared.messages.messages import AnyMessage

CONNECT_TIMEOUT_S = 3.0
ASK_TIMEOUT_S = 1.0  # until another one is asked who the master is
MAX_CONNECTIONS = 64  # of one process; more at a time would not be served sooner, Redis has one thread
CONNECTION_WAIT_S = 10.0  # for one of them; a burst of thousands has all had its turn long before
SOCKET_TIMEOUT_S = 15.0  # longer than any blocking read
HEALTH_CHECK_S = 30  # a connection that was idle for this long is tried before it is used
READ_BLOCK_MS = 1_000
MAX_READ_ENTRIES = 512
MAX_LETTER_FIELDS = 8  # of an entry that is buried; messages have one

# what redis-py has a class for, and what it tells by the first word of the message
_REFUSALS = (OutOfMemoryError, BusyLoadingError, ReadOnlyError, NoMasterError, MasterDownError)
_REFUSAL_CODES = ("MISCONF ", "BUSY ", "NOREPLICAS ")

UNDECODABLE = Counter("treadle_undecodable_entries_total", "Entries for this process that went to the dead letters")


class RedisUnreachableError(OperatorError):
    """There is no Redis at the configured address."""


def connect(url: str) -> Redis:
    """A client without retries: a commit that was sent twice would send its effects twice. Callers retry knowingly.

    Who finds all connections taken waits for one: the package's plain pool fails the 101st command at a time. Where
    the address names several servers, or sentinels, connections stay with the master. Raises `AddressError`, and
    `RedisUnreachableError` for files of TLS that are missing.
    """
    address = parse_address(url)
    if address.tls:
        for file in address.tls.files:
            if not os.access(file, os.R_OK):
                raise RedisUnreachableError(f"TLS to {address.place}: {file} cannot be read")
    options = _options(address.username, address.password)
    limits: dict[str, Any] = {
        "max_connections": MAX_CONNECTIONS,
        "timeout": CONNECTION_WAIT_S,
        "db": address.db,
        **options,
    }
    if address.socket:
        one = {"connection_class": UnixDomainSocketConnection, "path": address.socket}
        return Redis.from_pool(PlacedPool(address.place, **one, **limits))
    tls = _tls_options(address)
    asked = {"socket_connect_timeout": ASK_TIMEOUT_S, "socket_timeout": ASK_TIMEOUT_S}
    finder: MasterFinder
    if address.has_sentinels:
        of_sentinels = _options(address.sentinel_username, address.sentinel_password)
        finder = BySentinels(address.hosts, address.service, {**of_sentinels, **asked, **_client_tls(tls)})
    elif len(address.hosts) > 1:
        finder = OneOf(address.hosts, {**options, **asked, **_client_tls(tls)})
    else:
        finder = OnlyOne(address.hosts[0])
    return Redis.from_pool(MasterPool(address.place, finder, is_tls=address.tls is not None, **limits, **tls))


def _options(username: str | None, password: str | None) -> dict[str, Any]:
    return {
        "username": username,
        "password": password,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "health_check_interval": HEALTH_CHECK_S,
        # RESP3 switches maintenance notices on, and with them redis-py 8 hands out pooled connections that are closed
        "protocol": 2,
    }


def _tls_options(address: RedisAddress) -> dict[str, Any]:
    tls = address.tls
    if tls is None:
        return {}
    return {
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
        "ssl_cert_reqs": tls.cert_reqs,
        "ssl_check_hostname": tls.checks_host,
    }


def _client_tls(tls: dict[str, Any]) -> dict[str, Any]:
    """The same for a client that makes a pool of its own."""
    return {"ssl": True, **tls} if tls else {}


async def check_reachable(redis: Redis) -> None:
    """One ping; `RedisUnreachableError` says what to do when it fails."""
    try:
        await redis.ping()
    except (RedisError, OSError) as error:
        pool = redis.connection_pool
        place = pool.place if isinstance(pool, PlacedPool) else "its address"  # never the URL: it may hold a password
        raise RedisUnreachableError(
            f"no Redis answers at {place} ({error}); start one there or set TREADLE_REDIS_URL"
        ) from error


class StreamReader:
    """Reads one stream from now on; for readers whose past does not matter because they begin a new life."""

    def __init__(self, redis: Redis, stream: str) -> None:
        self.stream = stream
        self._redis = redis
        self._connection = HeldConnection(redis, SOCKET_TIMEOUT_S)
        self._last_id = BEGINNING
        self._marks = ReadMarks()
        self._num_moves = 0
        self.num_lacks = 0
        """Times that entries may have been trimmed before they were read."""

    @property
    def last_id(self) -> bytes:
        """Id of the last entry that `read` has answered."""
        return self._last_id

    async def start(self) -> None:
        """Begin behind the newest entry that is there now."""
        newest: Any = await self._redis.xrevrange(self.stream, count=MAX_MARKS)
        self._marks = ReadMarks()
        for entry_id, fields in reversed(newest):
            self._marks.note(entry_id, fields.get(FIELD, b""))
        self._move(newest[0][0] if newest else BEGINNING)

    async def put_back(self) -> None:
        """The stream may have lost its end: go on behind the last entry that was read and is still there.

        Where none of those that are remembered is, all that there is comes again.
        """
        entries: Any = await self._redis.xrange(self.stream, min=self._marks.oldest, count=MAX_MARKS)
        self._move(self._marks.go_back((entry_id, fields.get(FIELD, b"")) for entry_id, fields in entries))

    def _move(self, entry_id: bytes) -> None:
        self._num_moves += 1
        self._last_id = entry_id

    async def read(self, block_ms: int = READ_BLOCK_MS, max_entries: int = MAX_READ_ENTRIES) -> list[AnyMessage]:
        """The next messages; an empty list when none came in time. Undecodable ones go to the dead letters."""
        num_moves = self._num_moves
        how = ("COUNT", max_entries, "BLOCK", block_ms)
        [reply] = await self._connection.ask(("XREAD", *how, "STREAMS", self.stream, self._last_id))
        if isinstance(reply, ResponseError):
            raise reply
        if not reply or num_moves != self._num_moves:  # moved meanwhile: what was asked for is not what comes next
            return []
        entries = [(entry_id, dict(zip(parts[::2], parts[1::2], strict=True))) for entry_id, parts in reply[0][1]]
        messages: list[AnyMessage] = []
        for entry_id, fields in entries:
            try:
                messages.append(decode_entry(fields))
            except UndecodableError as error:
                await bury(self._redis, self.stream, entry_id, fields, str(error))
        # what is trimmed goes from the oldest on, and only from a stream of more than can be read at once
        is_behind = len(entries) == max_entries and not await self._is_there(self._last_id)
        if num_moves != self._num_moves:
            return []
        self.num_lacks += is_behind
        for entry_id, fields in entries:
            self._marks.note(entry_id, fields.get(FIELD, b""))
            self._last_id = entry_id
        return messages

    async def _is_there(self, entry_id: bytes) -> bool:
        return entry_id == BEGINNING or bool(await self._redis.xrange(self.stream, entry_id, entry_id, count=1))

    async def trim(self) -> None:
        """Forget what has been read."""
        await self._redis.xtrim(self.stream, minid=self._last_id, approximate=True)


async def bury(redis: Redis, stream: str, entry_id: bytes, fields: dict[bytes, bytes], reason: str) -> None:
    """Keep an undecodable entry as evidence."""
    UNDECODABLE.inc()
    shown = list(fields.items())[:MAX_LETTER_FIELDS]
    letter = [*shown, (b"stream", stream.encode()), (b"id", entry_id), (b"reason", reason.encode())]
    parts = [part[:MAX_LETTER_BYTES] for pair in letter for part in pair]
    await redis.register_script(scripts.BURY)(keys=[DEAD_LETTER], args=[MAX_DEAD_LETTERS, *parts])


def is_refusal(error: Exception) -> bool:
    """Whether Redis has answered that it does nothing of the kind now: what was asked for has not been done.

    It is full, cannot write its disk, reads its data back, or is a replica; who waits may ask again.
    """
    return isinstance(error, _REFUSALS) or str(error).startswith(_REFUSAL_CODES)
