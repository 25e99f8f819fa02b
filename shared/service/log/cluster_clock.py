"""The time of a service: Redis's clock, as entry ids tell it, mended where that clock has stepped. Pure.

A core's time has to go on (dead nodes are found by it) and must not jump (deadlines are kept by it). Redis's wall clock
may do either: set back, it gives ids that stand still until it has caught up; set forward, ids leap. So a service
compares it with its own monotonic clock, and where the two have come apart it goes on by its own: from some entry on,
ids are read with another offset. Such a *mark* is committed with the entry's effects, so each replay reads it alike.
"""

from __future__ import annotations

from collections.abc import Mapping

STEP_S = 0.5  # clocks that are further apart than this have not drifted: one of them was set
STILL_S = 0.1  # for so long a service's time may stand still while Redis's ids do


class ClusterClock:
    """Reads the ids of one service's entries as times, in seconds. They never go back."""

    def __init__(self, offset_s: float = 0.0, last_s: float = 0.0, marks: Mapping[bytes, float] | None = None) -> None:
        """As a snapshot kept it, with the ``marks`` that were committed since."""
        self.offset_s = offset_s
        """What ids are read with: time is the id's and this."""
        self.last_s = last_s
        """Time of the newest entry that was read."""
        self._known = dict(marks or {})
        self._own_s = last_s
        self._own_at_s = 0.0
        self._is_behind = False
        self._is_moved = False
        self._new: dict[bytes, float] = {}

    # --- the fold: the same in every life -------------------------------------------------------------------------

    def replay(self, entry_id: bytes) -> float:
        """Time of an entry that was committed before."""
        self.offset_s = self._known.get(entry_id, self.offset_s)
        self.last_s = max(self.last_s, id_time(entry_id) + self.offset_s)
        return self.last_s

    # --- live: times of one's own monotonic clock come in ---------------------------------------------------------

    def begin(self, redis_s: float, at_s: float, shared_offset_s: float | None) -> None:
        """All has been replayed, and Redis's clock told ``redis_s``. What other services go by is taken over."""
        if shared_offset_s is not None and abs(shared_offset_s - self.offset_s) > STEP_S:
            self.offset_s, self._is_moved = shared_offset_s, True
        said_s = redis_s + self.offset_s
        self._own_s, self._own_at_s = max(said_s, self.last_s), at_s
        self._is_behind = said_s < self.last_s - STEP_S

    def now(self, at_s: float) -> float:
        """The time, by one's own clock since it last agreed with Redis's."""
        return max(self.last_s, self._own_s + at_s - self._own_at_s)

    def compare(self, redis_s: float, asked_at_s: float, told_at_s: float) -> None:
        """Redis's clock told ``redis_s``, some time between question and answer. Small differences are followed."""
        said_s = redis_s + self.offset_s
        least_s, most_s = self.now(asked_at_s), self.now(told_at_s)
        self._is_behind = said_s < least_s - STEP_S
        if least_s - STEP_S <= said_s < least_s:
            self._own_s, self._own_at_s = said_s, asked_at_s
        elif most_s < said_s <= most_s + STEP_S:
            self._own_s, self._own_at_s = said_s, told_at_s

    def read(self, entry_id: bytes, at_s: float, *, is_tick: bool = False) -> float:
        """Time of a new entry. Where its id is off, it and all behind it are read with another offset.

        An old id alone is no fault: a service that was away has much to catch up with. It is one while Redis's clock is
        behind. A tick is due by one's own clock, so it has that time then.
        """
        if entry_id in self._known:
            return self.replay(entry_id)
        now_s = self.now(at_s)
        read_s = id_time(entry_id) + self.offset_s
        is_still = self._is_behind and read_s < now_s - (0.0 if is_tick else STILL_S)
        if is_still or read_s > now_s + STEP_S:
            self.offset_s, self._is_moved = now_s - id_time(entry_id), True
        if self._is_moved:
            self._new[entry_id], self._is_moved = self.offset_s, False
        self.last_s = max(self.last_s, id_time(entry_id) + self.offset_s)
        return self.last_s

    def take_marks(self) -> dict[bytes, float]:
        """Marks to be committed with the entries that were read; by entry, the offset from there on."""
        marks, self._new = self._new, {}
        self._known |= marks
        return marks

    def forget(self, covered: list[bytes]) -> None:
        """Marks of entries that will not be read again."""
        for entry_id in covered:
            self._known.pop(entry_id, None)

    @property
    def marked(self) -> list[bytes]:
        """Entries with a mark that was committed since the last snapshot."""
        return list(self._known)


def id_time(entry_id: bytes) -> float:
    """Redis's clock at an entry, in seconds: the first half of its id, in milliseconds."""
    return int(entry_id.partition(b"-")[0]) / 1000


def id_order(entry_id: bytes) -> tuple[int, int]:
    """Entry ids compare as pairs of integers."""
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq)
