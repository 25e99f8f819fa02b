"""A batch whose requests are being answered: which of them are out, which are due again, which have an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush

from services.batches.decisions.send_window import SendWindow
from services.batches.decisions.verdict import AnswerVerdict, verdict_of
from shared.messages.batches.batches import BatchCounts

RETRY_S = 1.0  # until a request is sent again where nothing says how long to wait
MAX_PAUSE_S = 30.0  # however long a gateway asks to be left alone: much changes within a minute


@dataclass(slots=True)
class OpenBatch:
    """The requests of one batch, numbered from 0. Each is out, due again, not sent yet, or settled."""

    id: str
    tenant: str
    expires_s: float
    num_requests: int
    window: SendWindow
    counts: BatchCounts
    settled: bytearray
    """1 for each request that has an answer, or an error."""
    next_request: int = 0
    out: set[int] = field(default_factory=set)
    again: list[tuple[float, int]] = field(default_factory=list)
    """Heap of requests that are sent again, each with its time."""
    failures: Counter[int] = field(default_factory=Counter)
    """Answers that were errors of the server, of requests that are not settled."""
    stops: str = ""
    """Why no more are sent (a code of `shared.messages.batches.batch_lines`); empty while they are."""

    def __post_init__(self) -> None:
        self._skip_settled()

    @property
    def is_done(self) -> bool:
        """Every request has an answer or an error, or none will be sent any more."""
        return not self.out and (bool(self.stops) or not self.num_unsettled)

    @property
    def num_unsettled(self) -> int:
        """Requests without answer or error."""
        return self.num_requests - self.counts.completed - self.counts.failed

    @property
    def can_expire(self) -> bool:
        """Some have no answer, and more are sent."""
        return not self.stops and self.num_unsettled > 0

    def due_s(self, now: float) -> float | None:
        """When a request may be sent; None while all are out or settled, or as many as may be."""
        if self.stops or len(self.out) >= self.window.size:
            return None
        if self.next_request < self.num_requests:
            return self.window.opens_s(now)
        return max(self.window.opens_s(now), self.again[0][0]) if self.again else None

    def take(self, now: float) -> int:
        """The number of a request to send: one that is due again, else the next."""
        if self.again and self.again[0][0] <= now:
            _, number = heappop(self.again)
        else:
            number = self.next_request
            self.next_request += 1
            self._skip_settled()
        self.out.add(number)
        return number

    def answered(self, number: int, status: int, retry_after_s: float | None, now: float) -> AnswerVerdict:
        """What becomes of a request that was out, by its answer."""
        verdict = verdict_of(status, self.failures[number])
        self.out.discard(number)
        if verdict is AnswerVerdict.REFUSED:
            pause_s = min(RETRY_S if retry_after_s is None else retry_after_s, MAX_PAUSE_S)
            self.window.refused(now, pause_s)
            heappush(self.again, (now + pause_s, number))
        elif verdict is AnswerVerdict.RETRIED:
            self.failures[number] += 1
            heappush(self.again, (now + RETRY_S, number))
        elif verdict is not AnswerVerdict.REVOKED:
            self.window.answered()
            self._settle(number, is_completed=verdict is AnswerVerdict.COMPLETED)
        return verdict

    def give_up(self, number: int) -> None:
        """A request that was out has no answer, and gets none."""
        self.out.discard(number)

    def unsettled(self) -> list[int]:
        """Requests without answer or error, in their order."""
        return [number for number, is_settled in enumerate(self.settled) if not is_settled]

    def settle_rest(self) -> None:
        """Each of `unsettled` has its error now."""
        for number in self.unsettled():
            self._settle(number, is_completed=False)

    def _settle(self, number: int, *, is_completed: bool) -> None:
        self.settled[number] = 1
        del self.failures[number]
        counts = self.counts
        self.counts = BatchCounts(
            total=counts.total,
            completed=counts.completed + is_completed,
            failed=counts.failed + (not is_completed),
        )

    def _skip_settled(self) -> None:
        while self.next_request < self.num_requests and self.settled[self.next_request]:
            self.next_request += 1
