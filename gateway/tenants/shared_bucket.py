"""A bucket that all gateways' processes take from, as one of them knows it. Pure.

What is left is kept in Redis. A process takes without asking there, and tells now and then what it has taken; it hears
what is free for it, and gets half of that as an **advance**, which the others leave alone. A request goes on

- while less has been taken since the last telling than the advance, so that a request larger than it goes on, too; or
- where nothing was heard of the bucket lately, nothing has been taken since, and it had enough when it was heard of.

So what is taken beyond the limit is less than one request for each process; `tests/gateway/tenants` tries it. Any other
request waits for the next telling, and is refused only by what was heard lately. Where Redis is away, each process goes
by what it knows alone.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from gateway.tenants.bucket import TokenBucket

LATELY_S = 0.5  # what was heard so lately is believed where it says that there is nothing
ADVANCE_S = 2.0  # then it is given up; in Redis it holds for longer, so clocks need not agree


class RateVerdict(enum.Enum):
    """What becomes of a request now."""

    GOES_ON = "goes on"
    ASKS = "asks"
    """It is not known here: the next telling is due at once, and decides."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Telling:
    """What one process says of one bucket."""

    taken: float
    """Since it told last."""
    level: float
    """What it believes is left, should Redis know nothing."""
    keeps: float
    """Of its advance, what it may use until it has the answer."""
    wants_advance: bool


@dataclass(frozen=True, slots=True)
class HeardRate:
    """What is said to it."""

    free: float
    """What is left, without the advances of others."""
    advance: float


class SharedBucket:
    """One process's side of one bucket. At most one telling is under way at a time."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._bucket = TokenBucket(per_minute, now)
        self._untold = 0.0
        self._being_told = 0.0
        self._advance = 0.0
        self._heard_s = -math.inf
        self._is_wanted = False

    def level(self, now: float) -> float:
        """What is left as far as this process knows; negative in debt."""
        return self._bucket.level(now)

    def wait_s(self, amount: float, now: float) -> float:
        """As `TokenBucket.wait_s`, by that."""
        return self._bucket.wait_s(amount, now)

    def full_s(self, now: float) -> float:
        """As `TokenBucket.full_s`, by that."""
        return self._bucket.full_s(now)

    def has(self, amount: float, now: float, *, is_alone: bool) -> RateVerdict:
        """Whether so much is left; it is not taken now. ``is_alone``: Redis cannot be asked."""
        if self._bucket.wait_s(amount, now) <= 0:
            return RateVerdict.GOES_ON
        return RateVerdict.REFUSED if is_alone or self._has_heard(now) else RateVerdict.ASKS

    def verdict(self, amount: float, now: float, *, is_alone: bool) -> RateVerdict:
        """Of a request for so much, likewise."""
        verdict = self.has(amount, now, is_alone=is_alone)
        if verdict is not RateVerdict.GOES_ON or is_alone or self._untold < self._advance_left(now):
            return verdict
        return RateVerdict.GOES_ON if self._untold <= 0 and not self._has_heard(now) else RateVerdict.ASKS

    def take(self, amount: float, now: float) -> None:
        """Take it, wherever that leads; a negative amount is given back."""
        self._bucket.take(amount, now)
        self._untold += amount
        self._is_wanted = True

    def ask(self) -> None:
        """A request waits for what the next telling brings."""
        self._is_wanted = True

    def is_urgent(self, now: float) -> bool:
        """Whether more than half of the advance is used."""
        return self._untold > self._advance_left(now) / 2

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to tell: all was told, and no advance is to be given back."""
        return not (self._untold or self._advance or self._is_wanted)

    # --- telling --------------------------------------------------------------------------------------------------

    def tell(self, now: float, *, is_last: bool = False) -> Telling:
        """What is to be told now. Until it is answered, only half of what is left of the advance is used.

        ``is_last``: nothing more will be taken.
        """
        assert not self._being_told, "one telling at a time"
        wants = self._is_wanted and not is_last
        keeps = max(0.0, self._advance_left(now) - self._untold) / 2 if wants else 0.0
        self._advance = self._untold + keeps if keeps else 0.0
        self._being_told = self._untold
        self._is_wanted = False
        return Telling(self._untold, self.level(now), keeps, wants)

    def hear(self, heard: HeardRate, now: float) -> None:
        """The telling was taken; what came meanwhile goes off what was heard."""
        self._untold -= self._being_told
        self._being_told = 0.0
        self._advance = heard.advance
        self._heard_s = now
        self._bucket.set_level(heard.free - self._untold, now)

    def hear_nothing(self) -> None:
        """It was not taken, as far as is known: it is told again, so a key may be charged twice, but not left out."""
        self._being_told = 0.0
        self._is_wanted = True

    def _has_heard(self, now: float) -> bool:
        return now - self._heard_s <= LATELY_S

    def _advance_left(self, now: float) -> float:
        return self._advance if now - self._heard_s <= ADVANCE_S else 0.0
