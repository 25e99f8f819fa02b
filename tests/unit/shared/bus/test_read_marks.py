"""How far a reader goes back when a stream has lost its end."""

from __future__ import annotations

from shared.bus.read_marks import BEGINNING, MAX_MARKS, ReadMarks


def marks(*entries: tuple[bytes, bytes]) -> ReadMarks:
    found = ReadMarks()
    for entry_id, data in ((b"1-0", b"x"), *entries):
        found.note(entry_id, data)
    return found


def test_what_is_still_there_is_not_read_again() -> None:
    read = marks((b"2-0", b"a"), (b"3-0", b"b"))
    assert read.go_back([(b"1-0", b"x"), (b"2-0", b"a"), (b"3-0", b"b"), (b"4-0", b"c")]) == b"3-0"


def test_it_goes_back_to_before_what_was_lost_though_new_ids_lie_before_the_position() -> None:
    read = marks((b"2-0", b"a"), (b"9-0", b"b"))
    assert read.go_back([(b"1-0", b"x"), (b"2-0", b"a"), (b"5-0", b"new")]) == b"2-0"


def test_an_id_that_was_given_again_is_another_entry() -> None:
    read = marks((b"2-0", b"a"), (b"3-0", b"b"))
    assert read.go_back([(b"1-0", b"x"), (b"2-0", b"a"), (b"3-0", b"new")]) == b"2-0"


def test_without_anything_in_common_all_is_read() -> None:
    assert marks((b"2-0", b"a")).go_back([(b"3-0", b"b")]) == BEGINNING
    assert marks((b"2-0", b"a")).go_back([]) == BEGINNING


def test_what_was_trimmed_away_does_no_harm() -> None:
    read = marks((b"2-0", b"a"), (b"3-0", b"b"))
    assert read.go_back([(b"3-0", b"b"), (b"4-0", b"c")]) == b"3-0"


def test_no_more_is_remembered_than_is_said() -> None:
    read = marks(*((b"%d-0" % (number + 2), b"a") for number in range(2 * MAX_MARKS)))
    assert read.oldest == b"%d-0" % (MAX_MARKS + 2)


def test_what_was_lost_is_forgotten_so_that_a_second_loss_is_seen() -> None:
    read = marks((b"2-0", b"a"), (b"9-0", b"b"))
    assert read.go_back([(b"1-0", b"x"), (b"2-0", b"a")]) == b"2-0"
    read.note(b"3-0", b"c")
    assert read.go_back([(b"1-0", b"x"), (b"2-0", b"a"), (b"3-0", b"c"), (b"9-0", b"b")]) == b"3-0"
