"""The clients' port: aiohttp's server with bounds on connections, and with errors that repeat nothing.

What each connection may do, and for how long, is decided by `gateway.http.connections`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from gateway.http.connections import Connections, ConnectionState, Reason
from gateway.http.context import ANSWERED, CONNECTIONS
from gateway.http.expectations import refusing_others
from gateway.http.flush import DELIVERED, UNREAD, flush, give_up
from gateway.openai.errors import errors
from gateway.tenants.turnstile import ENTRANCE, Turnstile

# The whole header of a request: 64 fields, as long as those of a browser with its cookies and a token.
MAX_LINE_BYTES = 8190
MAX_FIELD_BYTES = 8190
MAX_FIELDS = 64
MAX_PIPELINED_BYTES = 64 << 10  # sent ahead while an answer is under way; no client that waits for answers does so
SWEEP_S = 0.25  # how late a time-out may be noticed

_log = structlog.get_logger(__name__)


class ClientsRunner(web.AppRunner):
    """Serves an application whose `CONNECTIONS` are bounded."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return ClientsServer(self.app[CONNECTIONS], self.app[ENTRANCE], made)


class ClientsServer(web.Server):
    """What aiohttp made for the application, with connections of our own."""

    def __init__(self, connections: Connections[asyncio.BaseProtocol], entrance: Turnstile, made: web.Server) -> None:
        sizes = {"max_line_size": MAX_LINE_BYTES, "max_field_size": MAX_FIELD_BYTES, "max_headers": MAX_FIELDS}
        super().__init__(
            refusing_others(made.request_handler),
            request_factory=self._begin,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs | sizes,  # the library tells them nowhere else
        )
        self.all = connections
        self._entrance = entrance
        self._make = made.request_factory
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> Any:
        """The protocol of a newcomer."""
        now = self._loop.time()
        self._entrance.make_way()
        protocol = self._welcome(now) or Refused(self.all)
        if self._sweep is None:
            self._sweep = self._loop.call_at(now + SWEEP_S, self._close_overdue, now + SWEEP_S)
        return protocol

    async def shutdown(self, timeout: float | None = None) -> None:
        """As the library does it."""
        if self._sweep is not None:
            self._sweep.cancel()
        await super().shutdown(timeout)

    def _welcome(self, now: float) -> ClientConnection | None:
        if self.all.is_full:
            gives_way = self.all.in_the_way(now)
            if gives_way is None:
                return None
            assert isinstance(gives_way, ClientConnection)
            gives_way.tear_down(Reason.CROWDED)
        connection = ClientConnection(self, loop=self._loop, **self._kwargs)
        self.all.enter(connection, ConnectionState.HEADER, now)
        return connection

    def _begin(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        request = self._make(message, payload, protocol, writer, task)
        assert isinstance(protocol, ClientConnection)
        protocol.begin(request)
        return request

    def _close_overdue(self, due_s: float) -> None:
        now = self._loop.time()
        if now < due_s + SWEEP_S:  # else the loop was busy, and what clients have sent is yet to be read
            for protocol, reason in self.all.overdue(now):
                assert isinstance(protocol, ClientConnection | Refused)
                protocol.tear_down(reason)
        self._sweep = None
        if not self.all.is_empty:
            self._sweep = self._loop.call_at(now + SWEEP_S, self._close_overdue, now + SWEEP_S)


class ClientConnection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_is_bad", "_num_ahead", "_request", "_server")

    def __init__(self, server: ClientsServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._request: web.BaseRequest | None = None
        self._num_ahead = 0
        self._is_bad = False

    def begin(self, request: web.BaseRequest) -> None:
        """A whole header has come."""
        self._request = request
        self._num_ahead = 0
        self._server.all.enter(self, ConnectionState.REQUEST, self._loop.time())

    def tear_down(self, reason: Reason) -> None:
        """Close at once; what is not written yet is dropped."""
        self._server.all.leave(self, reason)
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        super().connection_made(transport)
        if self._server.all.state_of(self) is None:  # it had to give way before it was there
            self.tear_down(Reason.CROWDED)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is gone."""
        is_unread = self._request is not None and self._request.get(UNREAD, False)
        self._server.all.leave(self, Reason.BAD_HTTP if self._is_bad else Reason.UNREAD if is_unread else Reason.CLOSED)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What a client has sent."""
        if self._is_bad:
            return
        if self._request is None:
            if data:
                self._server.all.enter(self, ConnectionState.HEADER, self._loop.time())
        elif self._request.content.is_eof() and not self._request.get(ANSWERED, False):
            self._num_ahead += len(data)
            if self._num_ahead > MAX_PIPELINED_BYTES:
                self.tear_down(Reason.PIPELINED)
                return
        super().data_received(data)
        self._end_broken_body()

    def _end_broken_body(self) -> None:
        """Tell the reader of a body that its framing is wrong: the library only answers behind that request."""
        request = self._request
        if request is None or request.content.is_eof() or not self._messages:
            return  # behind a body that has not ended there is no other message than that of a fault
        self._is_bad = True
        request.content.set_exception(web.RequestPayloadError("the framing of the body is wrong"))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send what is left of an answer, and wait until it is out."""
        write_s = self._server.all.timeouts.write_s
        request[ANSWERED] = True
        if self._is_bad:
            resp.force_close()
        try:
            if DELIVERED in request:  # by the handler that held slots for it
                finished = await super().finish_response(request, resp, start_time)
            else:
                async with asyncio.timeout(write_s):
                    finished = await super().finish_response(request, resp, start_time)
                await flush(request, write_s)
        except ConnectionError:
            return resp, True
        except TimeoutError:
            give_up(request)
            return resp, True
        if self._is_bad:
            await self._linger()
        if request.get(UNREAD, False):  # given up before, by the handler that held slots for it
            return resp, True
        self._request = None
        if self.transport is not None:
            self._server.all.enter(self, ConnectionState.IDLE, self._loop.time())
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (repeats what came)
    ) -> web.StreamResponse:
        """What is no HTTP, or failed outside of the application. What the client sent is neither told nor logged.

        It may be a key, and the library's own words repeat it.
        """
        request_id = os.urandom(16).hex()
        if status == 400:
            self._is_bad = True
            _log.info("bad_http", request_id=request_id, kind=type(exc).__name__)
            error = errors.bad_http()
        else:
            _log.exception("answer_failed", request_id=request_id, exc_info=exc)
            error = errors.internal()
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, so no other can be sent")
        response = error.response()
        response.headers["x-treadle-request-id"] = request_id
        response.force_close()
        return response

    async def _linger(self) -> None:
        """Read and drop what the client is still sending: closed with that unread, it would never see the answer."""
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
            await asyncio.sleep(self._server.all.timeouts.linger_s)  # cut short when the client closes


class Refused(asyncio.Protocol):
    """A connection for which there is no place: it is told so, and reads for a moment."""

    def __init__(self, connections: Connections[asyncio.BaseProtocol]) -> None:
        self._all = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer, and say that there is no more to come."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._all.can_refuse:
            transport.abort()
            return
        self._all.enter(self, ConnectionState.REFUSED, asyncio.get_running_loop().time())
        transport.write(_answer(errors.too_many_connections(self._all.limit)))
        transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """The client has read it, or time was over."""
        self._transport = None
        self._all.leave(self, Reason.REFUSED)

    def tear_down(self, reason: Reason) -> None:
        """Close at once."""
        self._all.leave(self, reason)
        if self._transport is not None:
            self._transport.abort()


def _answer(error: errors.ApiError) -> bytes:
    """The whole answer as bytes: no request has been read, so there is no machinery to make one."""
    body = msgspec.json.encode(error.body())
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in (error.headers | fields).items())
    return f"HTTP/1.1 {error.status} Service Unavailable\r\n{head}\r\n".encode() + body
