"""One image fetched from another node: blocking, in a thread of its own, a piece after the other into a file in memory.

The thread waits in the system, without the interpreter's lock, so the node's loop goes on beside it. Whoever started it
may stop it from the loop: it ends with the read that it is in.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
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


class ImageTransfer:
    """Fetches what a ticket names, once."""

    def __init__(self, ticket: ImageTicket, connect_s: float, stall_s: float) -> None:
        self._ticket = ticket
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
        try:
            fd = os.memfd_create("fetched-image", os.MFD_CLOEXEC)
        except OSError as error:
            raise TransferError("room", f"no memory for it: {error}") from error
        try:
            self._fetch(fd)
        except BaseException as error:
            os.close(fd)
            raise self._told(error) from error
        return fd

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
        place = urlsplit(self._ticket.url)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=self._connect_s)
        try:
            connection.connect()
            self._socket = connection.sock
            connection.sock.settimeout(self._stall_s)
            if self._is_stopped:
                raise TransferError("stopped", "nobody waits for it any more")
            connection.request("GET", place.path, headers={"Authorization": f"Bearer {self._ticket.token}"})
            with connection.getresponse() as response:
                self._read(response, fd)
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, fd: int) -> None:
        node, num_bytes = self._ticket.node, self._ticket.num_bytes
        if response.status != 200:
            reason = _REASONS.get(response.status, "unreachable")
            raise TransferError(
                reason, f"{node} answers {response.status}: {response.read(200).decode(errors='replace')}"
            )
        if response.length != num_body_bytes(num_bytes):
            raise TransferError("truncated", f"{node} has {response.length} bytes, for an image of {num_bytes}")
        head = memoryview(bytearray(HEAD.size))
        buffer = memoryview(bytearray(BUFFER_BYTES))
        for part in parts(num_bytes):
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

    def _read_into(self, response: http.client.HTTPResponse, memory: memoryview, begin: int) -> None:
        if response.readinto(memory) < len(memory):
            reason = "stopped" if self._is_stopped else "truncated"
            raise TransferError(reason, f"{self._ticket.node} ends at {begin} of {self._ticket.num_bytes} bytes")
