"""One image fetched from another node: blocking, in a thread of its own, a piece after the other into a file in memory.

The thread waits in the system, without the interpreter's lock, so the node's loop goes on beside it. The loop may stop
it: it ends with the read that it is in.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from zlib import crc32

from gpu_node.agent.images.piece_stream import HEAD, num_body_bytes, parts
from shared.messages.requests.requests import ImageTicket

CONNECT_S = 2.0
STALL_S = 5.0
"""For the answer, and between two reads: a node that sends nothing for so long hangs."""

BUFFER_BYTES = 1 << 20
"""Read, looked at and written while the processor has it near."""

BUSY = "busy"
"""The giver serves others: it may be asked again."""

_REASONS = {403: "refused", 404: "gone", 409: "gone", 503: BUSY}


class TransferError(Exception):
    """The image is lost; ``reason`` is one word, for metrics."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BegunFile:
    """A file in memory with the beginning of an image."""

    fd: int
    num_bytes: int
    seconds: float
    """That these took on their way."""


class ImageTransfer:
    """Fetches what a ticket names, once."""

    def __init__(self, ticket: ImageTicket, connect_s: float, stall_s: float, begun: BegunFile | None = None) -> None:
        """``begun``: what is there of it already; its file is gone on with, under a descriptor of this transfer's own.

        (Its thread may write for a moment after it was stopped: to a number that its owner has closed, that would be
        to whatever has the number then.) `TransferError` where there is none left.
        """
        self._ticket = ticket
        try:
            self._begun_fd = os.dup(begun.fd) if begun is not None else None
        except OSError as error:
            raise TransferError("room", f"no file for it: {error}") from error
        self.num_read = begun.num_bytes if begun is not None else 0
        """Bytes from the first on that are there, and what was sent."""
        self._connect_s = connect_s
        self._stall_s = stall_s
        self._socket: socket.socket | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """From any thread: `run` raises soon."""
        self._is_stopped = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed already: it is over
                self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> int:
        """The file descriptor of a file in memory with the whole image; `TransferError` where it does not come."""
        fd = self._begun_fd if self._begun_fd is not None else self._file()
        try:
            self._fetch(fd)
        except BaseException as error:
            os.close(fd)
            raise self._told(error) from error
        return fd

    @staticmethod
    def _file() -> int:
        try:
            return os.memfd_create("fetched-image", os.MFD_CLOEXEC)
        except OSError as error:
            raise TransferError("room", f"no memory for it: {error}") from error

    def _told(self, error: BaseException) -> BaseException:
        """What went wrong, as others hear of it; a defect as it is."""
        node = self._ticket.node
        match error:
            case TransferError():
                return error
            case TimeoutError():
                return TransferError("slow", f"{node} sends nothing")
            case OSError() | ValueError() | http.client.HTTPException():
                reason = "stopped" if self._is_stopped else "unreachable"
                return TransferError(reason, f"{node}: {type(error).__name__}: {error}")
        return error

    def _fetch(self, fd: int) -> None:
        with self._connected() as asking, asking(f"?from={self.num_read}" if self.num_read else "") as response:
            self._check(response)
            node, num_bytes = self._ticket.node, self._ticket.num_bytes
            if response.length != num_body_bytes(num_bytes - self.num_read):
                raise TransferError("truncated", f"{node} has {response.length} bytes, for an image of {num_bytes}")
            self._read(response, fd, num_bytes)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Callable[[str], http.client.HTTPResponse]]:
        """What asks the giver for the image's address with this behind it."""
        place = urlsplit(self._ticket.url)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=self._connect_s)

        def asking(behind: str) -> http.client.HTTPResponse:
            headers = {"Authorization": f"Bearer {self._ticket.token}"}
            connection.request("GET", place.path + behind, headers=headers)
            return connection.getresponse()

        try:
            connection.connect()
            self._socket = connection.sock
            connection.sock.settimeout(self._stall_s)
            if self._is_stopped:
                raise TransferError("stopped", "it is not awaited any more")
            yield asking
        finally:
            connection.close()

    def _check(self, response: http.client.HTTPResponse) -> None:
        """It is given."""
        if response.status != 200:
            reason = _REASONS.get(response.status, "unreachable")
            said = response.read(200).decode(errors="replace")
            raise TransferError(reason, f"{self._ticket.node} answers {response.status}: {said}")

    def _read(self, response: http.client.HTTPResponse, fd: int, end: int) -> None:
        """The pieces up to the image's byte ``end``."""
        node, num_bytes = self._ticket.node, self._ticket.num_bytes
        head = memoryview(bytearray(HEAD.size))
        buffer = memoryview(bytearray(BUFFER_BYTES))
        for part in parts(end, self.num_read):
            self._read_into(response, head, part.start)
            checksum = 0
            for begin in range(part.start, part.stop, BUFFER_BYTES):
                read = buffer[: min(BUFFER_BYTES, part.stop - begin)]
                self._read_into(response, read, begin)
                checksum = crc32(read, checksum)
                if os.pwrite(fd, read, begin) < len(read):
                    raise TransferError("room", f"no memory for all of its {num_bytes} bytes")
            if HEAD.unpack(head) != (checksum,):
                raise TransferError("damaged", f"{node}: bytes {part.start} to {part.stop} are not what was sent")
            self.num_read = part.stop

    def _read_into(self, response: http.client.HTTPResponse, memory: memoryview, begin: int) -> None:
        if response.readinto(memory) < len(memory):
            reason = "stopped" if self._is_stopped else "truncated"
            raise TransferError(reason, f"{self._ticket.node} ends at {begin} of {self._ticket.num_bytes} bytes")
