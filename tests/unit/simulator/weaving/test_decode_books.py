"""Who decodes where, and how many blocks that takes, by hand."""

from __future__ import annotations

from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.operator_times import DecodeStep
from tests.unit.simulator.weaving.unit_speed import sequence


def test_blocks_are_taken_as_sequences_grow_and_come_back_at_their_ends() -> None:
    books = DecodeBooks(num_blocks=10)
    books.waiting.extend([sequence(16, 3, 1), sequence(31, 2, 2)])
    assert len(books.admit()) == 2
    assert books.local.num_free == 10 - 1 - 2
    # the first begins its second block; the second has one token left in its own
    assert books.next_step() == DecodeStep(2, 17 + 32)
    assert books.local.num_free == 6
    assert [one.payload.request_id for one in books.step()] == ["2"]
    assert books.local.num_free == 8
    assert books.next_step() == DecodeStep(1, 18)
    assert [one.payload.request_id for one in books.step()] == ["1"]
    assert (books.num_running, books.local.num_free, books.local.used_share) == (0, 10, 0.0)


def test_the_ratio_is_kept_and_a_full_pool_gives_way_to_the_other() -> None:
    books = DecodeBooks(num_blocks=10, num_remote_blocks=3, ratio=0.5)
    books.waiting.extend(sequence(16, 4, number) for number in range(1, 8))
    assert len(books.admit()) == 7
    # one here, one there, one here, one there; then the receiver has no room for a sequence and one block more
    assert (len(books.local.batch), len(books.remote.batch)) == (5, 2)
    assert books.shape == DecodeStep(5, 5 * 17, 2, 2 * 17)


def test_who_does_not_fit_waits_and_holds_up_those_behind() -> None:
    books = DecodeBooks(num_blocks=4)
    books.waiting.extend([sequence(32, 4, 1), sequence(32, 4, 2), sequence(1, 4, 3)])
    assert [one.payload.request_id for one in books.admit()] == ["1"], "2 blocks of the 2 that are left are no room"
    assert len(books.waiting) == 2


def test_the_newest_goes_back_where_a_pool_overflows() -> None:
    books = DecodeBooks(num_blocks=3)
    books.waiting.extend([sequence(16, 9, 1), sequence(16, 9, 2)])
    assert len(books.admit()) == 2
    assert books.next_step() == DecodeStep(1, 17), "each needs another block, and one is free"
    assert (books.num_sent_back, [one.payload.request_id for one in books.waiting]) == (1, ["2"])
    assert books.waiting[0].offset == 17, "nothing of it is lost"
