"""Lines of result files (`shared.messages.batches.batch_lines`): how they are written, and what is read of them
again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from shared.messages.batches.batch_lines import CANCELLED, EXPIRED, REVOKED, AnswerBody, AnswerLine, NoAnswer

_TEXTS = {
    EXPIRED: "this request could not be answered before the window of its batch was over",
    CANCELLED: "this request had no answer when its batch was cancelled",
    REVOKED: "the API key that made this batch is not valid any more",
}
_ID = re.compile(rb'^\{"id":"batch_req_[0-9a-f]{32}_([0-9]{1,7})"')


class _Unanswered(msgspec.Struct, frozen=True):
    error: NoAnswer | None


_unanswered = msgspec.json.Decoder(_Unanswered)


def answer_line(batch: str, number: int, custom_id: str, answer: AnswerBody) -> bytes:
    """The line of an answer, or of an answer that is an error."""
    return _encoded(AnswerLine(_id(batch, number), custom_id, answer, None))


def unanswered_line(batch: str, number: int, custom_id: str, code: str) -> bytes:
    """The line of a request that has no answer; ``code`` says why."""
    return _encoded(AnswerLine(_id(batch, number), custom_id, None, NoAnswer(code, _TEXTS[code])))


def read_numbers(lines: Iterable[bytes]) -> Iterator[int]:
    """Numbers of the requests whose lines these are; ValueError for a line that was not written here."""
    for line in lines:
        found = _ID.match(line)
        if found is None:
            raise ValueError("this is no line of a result file")
        yield int(found[1])


def count_unanswered(lines: Iterable[bytes]) -> Counter[str]:
    """How many requests have no answer, by the code that says why."""
    errors = (_unanswered.decode(line).error for line in lines)
    return Counter(error.code for error in errors if error is not None)


def _id(batch: str, number: int) -> str:
    return f"batch_req_{batch.rpartition('_')[2]}_{number}"


def _encoded(line: AnswerLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"
