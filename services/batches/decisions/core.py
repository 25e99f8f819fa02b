"""Which request of which batch is sent next. Pure: time comes in, and nothing is sent or written here.

Tenants have their turns by weight: next comes the tenant with the fewest requests out for its weight, and of its
batches the one whose window ends first (earliest deadline first). How the cluster serves them among all other requests,
the queue decides by their promises (`services.batches.decisions.promise`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.batches.decisions.open_batch import OpenBatch
from services.batches.decisions.promise import promised_s
from services.batches.decisions.send_window import SendWindow
from services.batches.decisions.verdict import AnswerVerdict
from shared.messages.batches.batch_lines import REVOKED
from shared.messages.batches.batches import BatchCounts


@dataclass(frozen=True, slots=True)
class Sending:
    """A request to send."""

    batch: str
    number: int
    deadline_s: float
    """Its promise, in seconds from now."""


class BatchCore:
    """The batches that are being answered."""

    def __init__(self, max_inflight: int, weight_of: Callable[[str], float]) -> None:
        """``max_inflight``: requests of all batches that are out at a time; ``weight_of`` a tenant."""
        self._max_inflight = max_inflight
        self._weight_of = weight_of
        self._batches: dict[str, OpenBatch] = {}
        self._num_out: Counter[str] = Counter()
        self.is_blocked = False
        """Answers cannot be written: nothing is sent."""

    @property
    def num_out(self) -> int:
        """Requests that are out."""
        return sum(self._num_out.values())

    @property
    def batches(self) -> Iterable[OpenBatch]:
        """Those that are being answered."""
        return self._batches.values()

    def get(self, batch: str) -> OpenBatch | None:
        """None for one that is not being answered."""
        return self._batches.get(batch)

    def begin(
        self, batch: str, tenant: str, expires_s: float, num_requests: int, settled: Iterable[tuple[int, bool]] = ()
    ) -> None:
        """Answer the requests of a batch, but for ``settled``: of an earlier life, and whether each has its answer."""
        flags, num_of = bytearray(num_requests), Counter[bool]()
        for number, is_completed in settled:
            num_of[is_completed] += not flags[number]
            flags[number] = 1
        self._batches[batch] = OpenBatch(
            id=batch,
            tenant=tenant,
            expires_s=expires_s,
            num_requests=num_requests,
            window=SendWindow(self._max_inflight),
            counts=BatchCounts(total=num_requests, completed=num_of[True], failed=num_of[False]),
            settled=flags,
        )

    def take(self, now: float) -> list[Sending]:
        """What is to be sent now."""
        found = []
        while (chosen := self._choose(now)) is not None:
            self._num_out[chosen.tenant] += 1
            found.append(Sending(chosen.id, chosen.take(now), promised_s(chosen.expires_s - now)))
        return found

    def answered(self, batch: str, number: int, status: int, retry_after_s: float | None, now: float) -> AnswerVerdict:
        """An answer to a request that was out; ``status`` is HTTP's, 503 where no gateway answered."""
        found = self._batches[batch]
        self._num_out[found.tenant] -= 1
        verdict = found.answered(number, status, retry_after_s, now)
        if verdict is AnswerVerdict.REVOKED:
            found.stops = found.stops or REVOKED
        return verdict

    def given_up(self, batch: str, number: int) -> None:
        """A request that was out has been called back."""
        found = self._batches[batch]
        self._num_out[found.tenant] -= 1
        found.give_up(number)

    def stop(self, batch: str, why: str) -> None:
        """Send no more of a batch. Its requests that are out are to be called back."""
        found = self._batches[batch]
        found.stops = found.stops or why

    def overdue(self, now: float) -> list[str]:
        """Batches whose window is over, and that are to be stopped."""
        return [one.id for one in self._batches.values() if one.can_expire and one.expires_s <= now]

    def done(self) -> list[str]:
        """Batches of which nothing more will come."""
        return [one.id for one in self._batches.values() if one.is_done]

    def end(self, batch: str) -> None:
        """Forget a batch that is done."""
        del self._batches[batch]

    def wakes_s(self, now: float) -> float | None:
        """When there is something to do if nothing happens until then: a request is due, or a window over."""
        ends = [one.expires_s for one in self._batches.values() if one.can_expire]
        has_room = not self.is_blocked and self.num_out < self._max_inflight
        dues = [one.due_s(now) for one in self._batches.values()] if has_room else []
        return min([*ends, *(due for due in dues if due is not None)], default=None)

    def _choose(self, now: float) -> OpenBatch | None:
        if self.is_blocked or self.num_out >= self._max_inflight:
            return None
        ready = [one for one in self._batches.values() if (due := one.due_s(now)) is not None and due <= now]
        return min(ready, key=self._urgency, default=None)

    def _urgency(self, batch: OpenBatch) -> tuple[float, float, str]:
        share = self._num_out[batch.tenant] / self._weight_of(batch.tenant)
        return (share, batch.expires_s, batch.id)
