"""What becomes of a request by the status of its answer."""

from __future__ import annotations

from enum import Enum

MAX_FAILURES = 3  # of a request whose answers are errors of the server: what fails thrice fails again
_COME_AGAIN = frozenset((408, 425, 429, 502, 503, 504))
_UNAUTHORISED = 401


class AnswerVerdict(Enum):
    """What becomes of it."""

    COMPLETED = "completed"
    """It has its answer."""
    FAILED = "failed"
    """It has an error, and would get it again."""
    REFUSED = "refused"
    """There was no room, or no gateway to answer: it is sent again later, however often, until the window is over."""
    RETRIED = "retried"
    """Something broke: it is sent again, `MAX_FAILURES` times in all."""
    REVOKED = "revoked"
    """The key that made its batch is not valid any more; nor are the other requests."""


def verdict_of(status: int, num_failures: int) -> AnswerVerdict:
    """Of an answer with this HTTP status, after so many answers of the same request that were errors of the server."""
    if 200 <= status < 300:
        return AnswerVerdict.COMPLETED
    if status == _UNAUTHORISED:
        return AnswerVerdict.REVOKED
    if status in _COME_AGAIN:
        return AnswerVerdict.REFUSED
    if status >= 500 and num_failures + 1 < MAX_FAILURES:
        return AnswerVerdict.RETRIED
    return AnswerVerdict.FAILED
