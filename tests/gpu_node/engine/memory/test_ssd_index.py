"""What lies where on an SSD: by hand, and whatever happens in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_node.engine.memory.tiers.ssd_index import Slot, SsdIndex

SIZES = (10, 15)


def write(index: SsdIndex, digest: bytes, slot_bytes: int = 10) -> Slot | None:
    slot = index.begin_write(digest, slot_bytes)
    if slot is not None:
        index.end_write(digest, is_whole=True)
    index.check()
    return slot


def test_the_block_used_longest_ago_goes_for_a_new_one() -> None:
    index = SsdIndex(capacity_bytes=40, segment_bytes=20)
    slots = [write(index, digest) for digest in (b"a", b"b", b"c", b"d")]
    assert {(slot.segment, slot.number) for slot in slots if slot} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert index.used_bytes == 40
    index.touch(b"a")
    assert index.begin_read(b"b") == slots[1]
    index.end_read(b"b", is_whole=True)
    assert write(index, b"e") == slots[2]
    assert [one in index for one in (b"a", b"b", b"c", b"d", b"e")] == [True, True, False, True, True]


def test_what_is_being_read_or_written_does_not_go() -> None:
    index = SsdIndex(capacity_bytes=20, segment_bytes=20)
    write(index, b"a")
    assert index.begin_read(b"a") == index.begin_read(b"a")  # two models of the same weights
    assert index.begin_write(b"b", 10) is not None
    assert b"b" not in index  # not there yet
    assert index.begin_write(b"b", 10) is None  # on its way
    assert index.begin_write(b"c", 10) is None
    index.end_read(b"a", is_whole=True)
    assert index.begin_write(b"c", 10) is None
    index.end_read(b"a", is_whole=False)  # damaged
    assert index.begin_write(b"c", 10) is not None
    index.check()


def test_blocks_of_another_size_get_a_segment_that_is_empty() -> None:
    index = SsdIndex(capacity_bytes=60, segment_bytes=30)
    for digest in (b"a", b"b", b"c", b"d"):
        write(index, digest)
    assert write(index, b"w", 15) == Slot(0, 0, 15)  # a, b, c have gone for it
    assert [one in index for one in (b"a", b"b", b"c", b"d")] == [False, False, False, True]
    assert write(index, b"x", 31) is None  # larger than a segment


def test_what_an_earlier_life_left_is_found_and_older_than_what_is_new() -> None:
    index = SsdIndex(capacity_bytes=40, segment_bytes=20)
    assert index.reopen(1, 10)
    assert not index.reopen(2, 10)  # beyond the capacity
    assert not index.reopen(1, 10)  # twice
    new = write(index, b"n")
    assert new is not None
    assert new.segment == 0  # what the other one holds is not known yet
    old = [(b"o", Slot(1, 0, 10)), (b"n", Slot(1, 1, 10))]
    index.tell(old)
    index.check()
    assert b"o" in index
    assert {write(index, b"p"), write(index, b"q")} == {Slot(0, 1 - new.number, 10), Slot(1, 1, 10)}
    assert write(index, b"r") == Slot(1, 0, 10)  # of the oldest


class Machine(RuleBasedStateMachine):
    """Beside the index stands a disk: which block each slot holds."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SsdIndex(capacity_bytes=120, segment_bytes=30)
        self.disk: dict[tuple[int, int, int], bytes] = {}
        self.writing: dict[bytes, Slot] = {}
        self.reading: list[tuple[bytes, Slot]] = []

    digests = st.integers(0, 15).map(lambda number: bytes([number]))

    def place(self, slot: Slot) -> tuple[int, int, int]:
        return slot.segment, slot.number * slot.slot_bytes, slot.slot_bytes

    @rule(digest=digests)
    def begin_write(self, digest: bytes) -> None:
        was_there = digest in self.index or digest in self.writing
        slot = self.index.begin_write(digest, SIZES[digest[0] % 2])
        assert slot is None or not was_there
        if slot is not None:
            segment, begin, size = self.place(slot)
            for key in list(self.disk):  # whatever lay there is overwritten
                if key[0] == segment and key[1] < begin + size and begin < key[1] + key[2]:
                    del self.disk[key]
            self.writing[digest] = slot

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), is_whole=st.booleans())
    def end_write(self, data: st.DataObject, is_whole: bool) -> None:
        digest = data.draw(st.sampled_from(sorted(self.writing)))
        slot = self.writing.pop(digest)
        if is_whole:
            self.disk[self.place(slot)] = digest
        self.index.end_write(digest, is_whole=is_whole)

    @rule(digest=digests)
    def begin_read(self, digest: bytes) -> None:
        slot = self.index.begin_read(digest)
        assert (slot is not None) == (digest in self.index)
        if slot is not None:
            assert self.disk[self.place(slot)] == digest, "what is found is there"
            self.reading.append((digest, slot))

    @precondition(lambda self: self.reading)
    @rule(data=st.data(), is_whole=st.booleans())
    def end_read(self, data: st.DataObject, is_whole: bool) -> None:
        number = data.draw(st.integers(0, len(self.reading) - 1))
        digest, slot = self.reading.pop(number)
        assert self.disk[self.place(slot)] == digest, "nothing was written over it while it was read"
        self.index.end_read(digest, is_whole=is_whole)

    @rule(digest=digests)
    def touch(self, digest: bytes) -> None:
        self.index.touch(digest)

    @invariant()
    def balances(self) -> None:
        self.index.check()
        assert self.index.used_bytes <= 120


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
