"""What lies where on an SSD: blocks in slots of segments, found by digest; the one used longest ago goes first.

A segment is a file, cut into slots of one size; models whose blocks differ in size have segments of their own, and the
order of use is one for all. A slot is taken for a write, found when that has succeeded, held while it is read, and
taken for another block when it was not used for longest. (LRU over host memory and SSD: NanoFlow, OSDI'25, §4.2.2.)

Integers only; what is written and read, `gpu_node.engine.tiers` does.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Slot:
    """Bytes ``[number * slot_bytes, (number + 1) * slot_bytes)`` of a segment."""

    segment: int
    number: int
    slot_bytes: int


@dataclass(slots=True)
class _Segment:
    slot_bytes: int
    num_slots: int
    free: set[int] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return len(self.free) == self.num_slots


def _unheard(digest: bytes) -> None:
    del digest


class SsdIndex:
    """The books of one folder."""

    def __init__(self, capacity_bytes: int, segment_bytes: int, gone: Callable[[bytes], None] = _unheard) -> None:
        """``gone`` is told of each block that can no longer be read."""
        self.segment_bytes = segment_bytes
        self._gone = gone
        self._max_segments = capacity_bytes // segment_bytes
        self._segments: dict[int, _Segment] = {}
        self._with_room: dict[int, set[int]] = {}  # segments with free slots, by bytes of a slot
        self._empty: set[int] = set()  # segments all of whose slots are free
        self._next_number = 0
        self._used_bytes = 0
        self._unread: set[int] = set()  # segments of an earlier life: what is in them is not known yet
        self._found: OrderedDict[bytes, Slot] = OrderedDict()  # used longest ago first
        self._reading: dict[bytes, Slot] = {}
        self._num_readers: Counter[bytes] = Counter()
        self._writing: dict[bytes, Slot] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._found or digest in self._reading

    @property
    def num_found(self) -> int:
        """Blocks that could be read."""
        return len(self._found) + len(self._reading)

    def found(self, slot_bytes: int) -> Iterator[bytes]:
        """Digests of blocks that could be read, of those in slots of this size."""
        for blocks in (self._found, self._reading):
            yield from (digest for digest, slot in blocks.items() if slot.slot_bytes == slot_bytes)

    @property
    def used_bytes(self) -> int:
        """Room that slots in use take."""
        return self._used_bytes

    # --- from an earlier life -----------------------------------------------------------------------------------------

    def reopen(self, number: int, slot_bytes: int) -> bool:
        """A segment is there whose content is yet to be told; False where it has no place: it is to be deleted."""
        if number in self._segments or not 0 <= number < self._max_segments or slot_bytes > self.segment_bytes:
            return False
        self._segments[number] = _Segment(slot_bytes, self.segment_bytes // slot_bytes)
        self._unread.add(number)
        return True

    def tell(self, blocks: Iterable[tuple[bytes, Slot]]) -> None:
        """All that reopened segments hold, written longest ago first; older than whatever was written since."""
        newer, self._found = self._found, OrderedDict()
        for number in self._unread:
            self._cut(number, self._segments.pop(number).slot_bytes)
        for digest, slot in blocks:
            if digest in newer or digest in self._writing or digest in self._reading:
                continue
            if (older := self._found.pop(digest, None)) is not None:
                self._free(older)
            self._occupy(slot)
            self._found[digest] = slot
        self._unread.clear()
        self._found.update(newer)

    # --- reads and writes ---------------------------------------------------------------------------------------------

    def touch(self, digest: bytes) -> None:
        """It is the one used most recently, if it is there."""
        if digest in self._found:
            self._found.move_to_end(digest)

    def begin_write(self, digest: bytes, slot_bytes: int) -> Slot | None:
        """A slot for a block that is to be written; None where it is there, or on its way, or nothing can go for it."""
        if digest in self or digest in self._writing:
            return None
        slot = self._take(slot_bytes)
        if slot is not None:
            self._writing[digest] = slot
        return slot

    def end_write(self, digest: bytes, *, is_whole: bool) -> None:
        """From now on it is found, if it was written."""
        slot = self._writing.pop(digest)
        if is_whole:
            self._found[digest] = slot
        else:
            self._free(slot)

    def begin_read(self, digest: bytes) -> Slot | None:
        """Where a block lies that is to be read; None if it is not there. Nothing goes for it until the read ends."""
        slot = self._found.pop(digest, None)
        if slot is not None:
            self._reading[digest] = slot
        slot = self._reading.get(digest)
        if slot is not None:
            self._num_readers[digest] += 1
        return slot

    def end_read(self, digest: bytes, *, is_whole: bool) -> None:
        """It is the one used most recently; or it is no more, where it was not what had been written."""
        self._num_readers[digest] -= 1
        if self._num_readers[digest]:
            return
        del self._num_readers[digest]
        slot = self._reading.pop(digest)
        if is_whole:
            self._found[digest] = slot
        else:
            self._free(slot)
            self._gone(digest)

    def check(self) -> None:
        """Assert that each slot is free or has one block, and that no room is used beyond the capacity. O(slots)."""
        assert len(self._segments) <= self._max_segments, "segments fit"
        assert self._num_readers.keys() == self._reading.keys(), "a block that is read has readers"
        assert not self._found.keys() & self._reading.keys(), "found or held"
        assert not self._writing.keys() & (self._found.keys() | self._reading.keys()), "written or there"
        used = [*self._found.values(), *self._reading.values(), *self._writing.values()]
        assert len(set(used)) == len(used), "a slot has one block"
        assert self._used_bytes == sum(slot.slot_bytes for slot in used), "room is counted"
        by_segment: dict[int, set[int]] = {number: set() for number in self._segments}
        for slot in used:
            assert slot.slot_bytes == self._segments[slot.segment].slot_bytes, "slots of a segment have one size"
            by_segment[slot.segment].add(slot.number)
        for number, segment in self._segments.items():
            if number not in self._unread:
                assert not segment.free & by_segment[number], "free or used"
                assert segment.free | by_segment[number] == set(range(segment.num_slots)), "no slot is lost"
                has_room = number in self._with_room.get(segment.slot_bytes, set())
                assert has_room == bool(segment.free), "segments with room are known"
                assert (number in self._empty) == segment.is_empty, "and those without a block"

    def _take(self, slot_bytes: int) -> Slot | None:
        """Free, in a new segment, in one that holds nothing any more, or that of the block used longest ago."""
        if slot_bytes > self.segment_bytes:
            return None
        while True:
            if with_room := self._with_room.get(slot_bytes):
                return self._take_from(next(iter(with_room)))
            number = self._unused_segment()
            if number is not None:
                self._cut(number, slot_bytes)
            elif self._found:
                digest, slot = self._found.popitem(last=False)
                self._free(slot)
                self._gone(digest)
            else:
                return None

    def _take_from(self, number: int) -> Slot:
        segment = self._segments[number]
        slot = Slot(number, next(iter(segment.free)), segment.slot_bytes)
        self._occupy(slot)
        return slot

    def _occupy(self, slot: Slot) -> None:
        segment = self._segments[slot.segment]
        segment.free.remove(slot.number)
        self._used_bytes += slot.slot_bytes
        self._empty.discard(slot.segment)
        if not segment.free:
            self._with_room[segment.slot_bytes].remove(slot.segment)

    def _unused_segment(self) -> int | None:
        """A number that no segment has, or has any use for."""
        if len(self._segments) < self._max_segments:
            while self._next_number in self._segments:
                self._next_number += 1
            return self._next_number
        return next(iter(self._empty), None)

    def _cut(self, number: int, slot_bytes: int) -> None:
        """A segment without blocks, in the place of the one that had the number."""
        if (former := self._segments.get(number)) is not None:
            self._with_room[former.slot_bytes].remove(number)
        num_slots = self.segment_bytes // slot_bytes
        self._segments[number] = _Segment(slot_bytes, num_slots, set(range(num_slots)))
        self._with_room.setdefault(slot_bytes, set()).add(number)
        self._empty.add(number)

    def _free(self, slot: Slot) -> None:
        segment = self._segments[slot.segment]
        segment.free.add(slot.number)
        self._used_bytes -= slot.slot_bytes
        self._with_room.setdefault(slot.slot_bytes, set()).add(slot.segment)
        if segment.is_empty:
            self._empty.add(slot.segment)
