"""Lines of result files, as OpenAI writes them: an answer with its status, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from services.batches.core import CANCELLED, EXPIRED, REVOKED

_TEXTS = {
    EXPIRED: "this request could not be answered before the window of its batch was over",
    CANCELLED: "this request had no answer when its batch was cancelled",
    REVOKED: "the API key that made this batch is not valid any more",
}
_ID = re.compile(rb'^\{"id":"batch_req_[0-9a-f]{32}_([0-9]{1,7})"')


class AnswerBody(msgspec.Struct, frozen=True):
    """What a gateway answered."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class NoAnswer(msgspec.Struct, frozen=True):
    """Why there is none."""

    code: str
    message: str


class AnswerLine(msgspec.Struct, frozen=True):
    """One line."""

    id: str
    custom_id: str
    response: AnswerBody | None
    error: NoAnswer | None


def answer_line(batch: str, number: int, custom_id: str, answer: AnswerBody) -> bytes:
    """The line of an answer, or of an answer that is an error."""
    return _encoded(AnswerLine(_id(batch, number), custom_id, answer, None))


def unanswered_line(batch: str, number: int, custom_id: str, code: str) -> bytes:
    """The line of a request that has no answer; ``code`` is one of `services.batches.core`."""
    return _encoded(AnswerLine(_id(batch, number), custom_id, None, NoAnswer(code, _TEXTS[code])))


def read_numbers(lines: Iterable[bytes]) -> Iterator[int]:
    """Numbers of the requests whose lines these are; ValueError for a line that was not written here."""
    for line in lines:
        found = _ID.match(line)
        if found is None:
            raise ValueError("this is no line of a result file")
        yield int(found[1])


def _id(batch: str, number: int) -> str:
    return f"batch_req_{batch.removeprefix('batch_')}_{number}"


def _encoded(line: AnswerLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
