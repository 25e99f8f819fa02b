"""Lines of an input file: what each has to be, and all that is wrong with a file at once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from shared.messages.batches.batches import LineProblem

MAX_PROBLEMS = 100  # that are told of one file
MAX_CUSTOM_ID_CHARACTERS = 512
LINES_A_REQUEST = 2  # of the most requests, empty ones included: a file of line breaks would take a thread for minutes
MAX_QUOTED_CHARACTERS = 64  # of what a client wrote


class InputLine(msgspec.Struct, frozen=True):
    """A request that was found right: as its client wrote it, and the name under which its answer is found."""

    custom_id: str
    body: msgspec.Raw


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    custom_id: str
    method: str
    url: str
    body: dict[str, Any]


_requests = msgspec.json.Decoder(InputLine)
_lines = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class InputLines:
    """Requests of a file by their places in it."""

    begins: array[int] = field(default_factory=lambda: array("Q"))
    """Where each begins, in bytes from the file's begin."""
    lengths: array[int] = field(default_factory=lambda: array("L"))
    problems: list[LineProblem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.begins)


def read_request(line: bytes) -> InputLine:
    """The request of a line that was found right; `msgspec.DecodeError` where it is not any more."""
    return _requests.decode(line)


def written_line(custom_id: str, endpoint: str, body: msgspec.Raw) -> bytes:
    """The line of a request that its client wrote in another form; ``body`` is JSON on one line."""
    line = {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": body}
    return msgspec.json.encode(line) + b"\n"


def check_lines(file: BinaryIO, endpoint: str, max_requests: int, max_line_bytes: int) -> InputLines:
    """All requests of a file, for ``endpoint``; with problems, up to `MAX_PROBLEMS`, where it cannot be run."""
    found, names, place, number = InputLines(), dict[str, int](), 0, 0
    while line := file.readline(max_line_bytes + 1):
        begin, place, number = place, place + len(line), number + 1
        if len(line) > max_line_bytes:
            found.problems.append(_problem("line_too_long", f"a line has at most {max_line_bytes} bytes", number))
            break
        if number > LINES_A_REQUEST * max_requests:
            most = LINES_A_REQUEST * max_requests
            found.problems.append(_problem("too_many_lines", f"a file has at most {most} lines, empty or not", number))
            break
        if not line.strip():
            continue
        if problem := _check(line, number, endpoint, names):
            found.problems.append(problem)
        if len(found) == max_requests:
            found.problems.append(_problem("too_many_requests", f"a batch has at most {max_requests} requests", number))
        if len(found) == max_requests or len(found.problems) >= MAX_PROBLEMS:
            break
        found.begins.append(begin)
        found.lengths.append(len(line))
    if not len(found) and not found.problems:
        found.problems.append(LineProblem(code="empty_file", message="the file has no requests"))
    return found


def _check(line: bytes, number: int, endpoint: str, names: dict[str, int]) -> LineProblem | None:
    try:
        request = _lines.decode(line)
    except (msgspec.ValidationError, RecursionError) as error:
        return _problem("invalid_request", str(error)[:512] or "it is nested too deeply", number)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _problem("invalid_json_line", f"this line is no JSON object: {error}"[:512], number)
    if not 1 <= len(request.custom_id) <= MAX_CUSTOM_ID_CHARACTERS:
        text = f"custom_id has 1 to {MAX_CUSTOM_ID_CHARACTERS} characters"
        return _problem("invalid_custom_id", text, number, "custom_id")
    first = names.setdefault(request.custom_id, number)
    if first != number:
        name = request.custom_id[:MAX_QUOTED_CHARACTERS]
        return _problem("duplicate_custom_id", f"line {first} has custom_id {name!r} already", number, "custom_id")
    if request.method != "POST":
        return _problem("invalid_method", "the method of a request is POST", number, "method")
    if request.url != endpoint:
        url = request.url[:MAX_QUOTED_CHARACTERS]
        return _problem("mismatched_endpoint", f"the batch is for {endpoint}, not {url!r}", number, "url")
    if request.body.get("stream"):
        return _problem("stream_not_allowed", "answers of a batch cannot be streamed", number, "body.stream")
    return None


def _problem(code: str, message: str, line: int, param: str | None = None) -> LineProblem:
    return LineProblem(code=code, message=message, line=line, param=param)
