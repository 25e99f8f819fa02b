"""Which server is the master now; connections that stay with it, leave a demoted one and ask for the master anew."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError

from shared.bus.redis_address import Host


class NoMasterError(RedisConnectionError):
    """No server says that it is master, or several do; it is asked again with the next connection."""


class MasterFinder(Protocol):
    """Knows where the master is."""

    must_say_so: bool
    """Whether who is found has to confirm that it is master."""

    async def find(self) -> Host:
        """Where it is now; a `RedisError` if that is not known."""

    def doubt(self) -> None:
        """Who was found last turned out to be none."""

    async def aclose(self) -> None:
        """Close connections of its own."""


class OnlyOne:
    """A single server; behind its name there may be another one tomorrow."""

    must_say_so = False

    def __init__(self, host: Host) -> None:
        self._host = host

    async def find(self) -> Host:
        """The server."""
        return self._host

    def doubt(self) -> None:
        """There is no other server to ask."""

    async def aclose(self) -> None:
        """Nothing to close."""


class OneOf:
    """Servers of which one is master. Two masters are an error: it could not be told which of them has the log.

    Who was found is believed until it is doubted: a server that is silent must not slow down every connection.
    """

    must_say_so = True

    def __init__(self, hosts: Sequence[Host], options: dict[str, Any]) -> None:
        self._known: Host | None = None
        self._servers = [(host, Redis(host=host[0], port=host[1], **options)) for host in hosts]

    async def find(self) -> Host:
        """All are asked at once, so the silence of one costs no more than the silence of all."""
        if self._known is not None:
            return self._known
        roles = await asyncio.gather(*(_role(server) for _, server in self._servers))
        masters = [host for (host, _), role in zip(self._servers, roles, strict=True) if role == "master"]
        if len(masters) == 1:
            self._known = masters[0]
            return masters[0]
        said = ", ".join(f"{host}:{port} {role}" for ((host, port), _), role in zip(self._servers, roles, strict=True))
        raise NoMasterError(f"{len(masters)} of {len(roles)} servers are master: {said}")

    def doubt(self) -> None:
        """They are asked again."""
        self._known = None

    async def aclose(self) -> None:
        """Close the connections by which they are asked."""
        await asyncio.gather(*(server.aclose() for _, server in self._servers), return_exceptions=True)


class BySentinels:
    """Sentinels know the master by a name; the first that answers is believed, until it proves wrong."""

    must_say_so = True

    def __init__(self, hosts: Sequence[Host], service: str, options: dict[str, Any]) -> None:
        self._service = service
        self._sentinel = Sentinel(list(hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]

    async def find(self) -> Host:
        """Where they say the master is."""
        host, port = await self._sentinel.discover_master(self._service)
        return host, int(port)

    def doubt(self) -> None:
        """Another sentinel is asked first from now on: this one may be cut off from the others."""
        sentinels = self._sentinel.sentinels
        sentinels.append(sentinels.pop(0))

    async def aclose(self) -> None:
        """Close the connections to them."""
        await self._sentinel.aclose()


class MasterConnection(Connection):
    """Asks where the master is before it connects; one that turns out to be a replica is left, by all connections."""

    def __init__(self, *, pool: MasterPool, **options: Any) -> None:
        self._pool = pool
        super().__init__(redis_connect_func=self._greet, **options)

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """As redis-py's. A connection that was reset while it was made is one more that is lost."""
        try:
            await super().send_packed_command(*args, **options)
        except RuntimeError as error:  # uvloop's, where asyncio has an OSError
            raise RedisConnectionError(f"{self.host}:{self.port} has closed the connection ({error})") from error

    async def _connect(self) -> None:
        self.host, self.port = await self._pool.find_master()
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except Exception:
            self._pool.finder.doubt()
            raise

    async def _greet(self, _: Any) -> None:
        await self.on_connect()
        if not self._pool.finder.must_say_so:
            return
        await self.send_command("ROLE")
        role = await super().read_response()
        if role[0] not in (b"master", "master"):
            self._pool.finder.doubt()
            raise NoMasterError(f"{self.host}:{self.port} is no master any more")

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; the refusal of a replica becomes a lost connection, which all callers know how to meet."""
        try:
            return await super().read_response(*args, **options)
        except ReadOnlyError as error:
            self._pool.finder.doubt()
            await self.disconnect()
            await self._pool.leave_master()
            raise NoMasterError(f"{self.host}:{self.port} is no master any more") from error


class MasterTlsConnection(MasterConnection, SSLConnection):
    """The same over TLS."""


class PlacedPool(BlockingConnectionPool):
    """A bounded pool that can say where it leads; who finds all of its connections taken waits."""

    def __init__(self, place: str, **options: Any) -> None:
        super().__init__(**options)
        self.place = place
        """The address for people, without what is secret."""


class MasterPool(PlacedPool):
    """A pool of connections to the server that is master."""

    def __init__(self, place: str, finder: MasterFinder, *, is_tls: bool, **options: Any) -> None:
        self.finder = finder
        self._master: Host | None = None
        connection_class = MasterTlsConnection if is_tls else MasterConnection
        super().__init__(place, connection_class=connection_class, pool=weakref.proxy(self), **options)

    async def find_master(self) -> Host:
        """Where to connect; when that has changed, connections to the old master are not used again."""
        host = await self.finder.find()
        if self._master not in (None, host):
            await self.leave_master()
        self._master = host
        return host

    async def leave_master(self) -> None:
        """Close idle connections now, and those at work when their commands have ended."""
        self._master = None
        await self.update_active_connections_for_reconnect()  # type: ignore[no-untyped-call]
        await self.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        """Close everything, the finder's connections too."""
        await super().aclose()
        await self.finder.aclose()


async def _role(server: Redis) -> str:
    """What a server says that it is, else why it says nothing."""
    try:
        reply: Any = await server.execute_command("ROLE")  # type: ignore[no-untyped-call]
    except (RedisError, OSError) as error:
        return f"does not answer ({error})"
    return reply[0].decode() if isinstance(reply[0], bytes) else str(reply[0])
