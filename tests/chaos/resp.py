"""RESP2 on the wire, cut into frames: requests as lists of arguments, replies as raw bytes. Also the log of Redis."""

from __future__ import annotations

from collections.abc import Iterator

CRLF = b"\r\n"
MAX_FRAME_BYTES = 512 << 20  # what Redis takes of one argument; more is no RESP


class RespError(Exception):
    """These bytes are no RESP2."""


class FrameCutter:
    """Takes bytes as they come and gives whole frames: of arrays and nested arrays as of simple lines."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now, raw."""
        self._data += data
        while True:
            end = frame_end(self._data, 0)
            if end is None:
                return
            frame = bytes(self._data[:end])
            del self._data[:end]
            yield frame


def frame_end(data: bytes | bytearray, start: int) -> int | None:
    """Where the frame at ``start`` ends; None while it is not whole."""
    line_end = data.find(CRLF, start)
    if line_end < 0:
        return None
    kind, after = data[start : start + 1], line_end + len(CRLF)
    if kind in (b"+", b"-", b":"):
        return after
    if kind not in (b"$", b"*"):
        raise RespError(f"no RESP: a frame that begins with {bytes(kind)!r}")
    number = int(data[start + 1 : line_end])
    if number > MAX_FRAME_BYTES:
        raise RespError(f"a frame of {number} bytes or parts")
    if kind == b"$":
        end = after if number < 0 else after + number + len(CRLF)
        return end if end <= len(data) else None
    at: int | None = after
    for _ in range(number):
        at = frame_end(data, at) if at is not None else None
    return at


def arguments(frame: bytes) -> list[bytes]:
    """The arguments of a request, which is an array of strings."""
    if frame[:1] != b"*":
        raise RespError("a request is an array")
    line_end = frame.index(CRLF)
    num_arguments, at = int(frame[1:line_end]), line_end + len(CRLF)
    found = []
    for _ in range(num_arguments):
        line_end = frame.index(CRLF, at)
        length, start = int(frame[at + 1 : line_end]), line_end + len(CRLF)
        found.append(frame[start : start + length])
        at = start + length + len(CRLF)
    return found


def commands(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Commands of an append-only file with the place at which each ends; a last one that is cut is left out."""
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"#":  # a time stamp
            line_end = data.find(CRLF, at)
            if line_end < 0:
                return
            at = line_end + len(CRLF)
            continue
        end = frame_end(data, at)
        if end is None:
            return
        yield end, arguments(data[at:end])
        at = end


def encode(*parts: bytes) -> bytes:
    """A request."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
