"""Cuts ``{"requests": [...]}``, as Anthropic's clients send it, into its requests while it comes.

No more than one request is held, however many there are. What is looked at here is where each ends: strings and
brackets; whether it is JSON, its reader finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

import msgspec

from services.batches.refused import RefusedError

MAX_HEAD_BYTES = 1024  # until the list has begun

_HEAD = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"requests"[ \t\r\n]*:[ \t\r\n]*\[')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)  # a bracket, a string, or the begin of one
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # of a string, up to its end or the end of what has come
_QUOTE, _COMMA, _OPEN, _CLOSE, _END = b'",{]}'


class _Place(Enum):
    HEAD = auto()
    FIRST = auto()  # in the list, which may be empty
    NEXT = auto()  # behind a comma
    INSIDE = auto()  # a request
    BEHIND = auto()  # one
    TAIL = auto()  # behind the list
    OVER = auto()


_STEPS = {
    (_Place.FIRST, _OPEN): _Place.INSIDE,
    (_Place.FIRST, _CLOSE): _Place.TAIL,
    (_Place.NEXT, _OPEN): _Place.INSIDE,
    (_Place.BEHIND, _COMMA): _Place.NEXT,
    (_Place.BEHIND, _CLOSE): _Place.TAIL,
    (_Place.TAIL, _END): _Place.OVER,
}
"""Where a character leads that is no space; any other is a fault."""


class RequestCutter:
    """Of one body."""

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes``: of a request."""
        self._max_bytes = max_bytes
        self._place = _Place.HEAD
        self._left = b""  # what has come and is not given out yet: from a request's begin on
        self._scanned = 0  # of that
        self._depth = 0
        self._is_in_string = False
        self._number = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The requests that end in the next piece; `RefusedError` for a body that is no list of them."""
        data, at = self._left + piece, 0
        if self._place is _Place.HEAD:
            at = self._begin(data)
        while at < len(data) and self._place is not _Place.HEAD:
            if self._place is _Place.INSIDE:
                end = self._end_of_request(data, at)
                if end is None:
                    break
                self._place = _Place.BEHIND
                self._number += 1
                yield data[at:end]
                at = end
            else:
                at = self._step(data, at)
        self._left = data[at:]

    def close(self) -> None:
        """Nothing more comes; `RefusedError` where something should."""
        if self._place is _Place.HEAD:
            raise _no_list(self._left)
        if self._place is not _Place.OVER:
            raise RefusedError(400, "invalid_json", f"the body ends too early, behind requests[{self._number}]")

    def _begin(self, data: bytes) -> int:
        found = _HEAD.match(data)
        if found is not None:
            self._place = _Place.FIRST
            return found.end()
        if len(data) > MAX_HEAD_BYTES:
            raise _no_list(data)
        return 0

    def _step(self, data: bytes, at: int) -> int:
        """Over spaces, and what is between requests; a request begins at its bracket."""
        found = _SPACE.match(data, at)
        assert found is not None, "it matches nothing, too"
        at = found.end()
        if at == len(data):
            return at
        place = _STEPS.get((self._place, data[at]))
        if place is None:
            raise self._fault()
        self._place = place
        return at if place is _Place.INSIDE else at + 1

    def _fault(self) -> RefusedError:
        name = f"requests[{self._number}]"
        if self._place in (_Place.FIRST, _Place.NEXT):
            return RefusedError(400, "invalid_value", f"{name} is no object, and a request is one", name)
        if self._place is _Place.BEHIND:
            return RefusedError(400, "invalid_json", f"between requests comes a comma: see before {name}", name)
        return RefusedError(400, "unknown_parameter", "behind 'requests' the body ends: it has no other field")

    def _end_of_request(self, data: bytes, begin: int) -> int | None:
        """None where it has not come yet; what was looked at is not looked at again."""
        at = begin + self._scanned
        while at < len(data):
            if self._is_in_string:
                text = _TEXT.match(data, at)
                assert text is not None, "it matches nothing, too"
                at = text.end()
                if at == len(data) or data[at] != _QUOTE:  # or its last character is a backslash
                    break
                self._is_in_string = False
                at += 1
                continue
            mark = _MARK.search(data, at)
            if mark is None:
                at = len(data)
                break
            begin_of_mark, at = mark.span()
            if data[begin_of_mark] == _QUOTE:
                self._is_in_string = at - begin_of_mark == 1
                continue
            self._depth += 1 if data[begin_of_mark] in b"{[" else -1
            if not self._depth:
                self._scanned = 0
                return at
        self._scanned = at - begin
        if len(data) - begin > self._max_bytes:
            raise too_long(self._number, self._max_bytes)
        return None


def too_long(number: int, max_bytes: int) -> RefusedError:
    """A request is longer than a gateway takes."""
    name = f"requests[{number}]"
    return RefusedError(413, "request_entity_too_large", f"{name} has more than {max_bytes} bytes", name)


def _no_list(data: bytes) -> RefusedError:
    """Why a body whose list never began is none; ``data`` is its begin, or all of it."""
    wanted = "the body is an object with one field, 'requests': a list of requests"
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return RefusedError(400, "invalid_json", wanted)
    if isinstance(found, dict) and "requests" not in found:
        return RefusedError(400, "missing_required_parameter", "'requests' is missing", "requests")
    return RefusedError(400, "invalid_value", wanted, "requests")
