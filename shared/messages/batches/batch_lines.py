"""Lines of a batch's result files, as OpenAI writes them: an answer with its status, or why there is none.

The batch service writes them; gateways read them where another interface has other lines.
"""

from __future__ import annotations

import msgspec

EXPIRED = "batch_expired"
CANCELLED = "batch_cancelled"
REVOKED = "key_revoked"


class AnswerBody(msgspec.Struct, frozen=True):
    """What a gateway answered."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class NoAnswer(msgspec.Struct, frozen=True):
    """Why there is none; ``code`` is one of the three above."""

    code: str
    message: str


class AnswerLine(msgspec.Struct, frozen=True):
    """One line: either an answer or why there is none."""

    id: str
    custom_id: str
    response: AnswerBody | None
    error: NoAnswer | None
