"""What came at places of a language, by hand."""

from __future__ import annotations

from gpu_node.engine.requests.language_habits import (
    MAX_HABITS,
    MAX_OPEN_TOKENS,
    MAX_TIMES,
    Habit,
    LanguageHabits,
    LanguagePlace,
    place_of,
)


def test_one_token_that_alone_may_come_is_the_place() -> None:
    assert place_of(bytes([0, 0b100, 0])) == LanguagePlace(10, b"")


def test_places_are_told_apart_by_what_may_come() -> None:
    one, same, other = place_of(b"\x03\x01"), place_of(b"\x03\x01"), place_of(b"\x03\x02")
    assert one == same
    assert one.only is None
    assert len({one.key, other.key, b""}) == 3


def test_where_much_may_come_nothing_is_known() -> None:
    full = b"\xff" * (MAX_OPEN_TOKENS // 8)
    assert place_of(full).key
    assert place_of(full + b"\x01") == LanguagePlace(None, b"")


def test_a_habit_is_what_came_last_and_how_often_in_a_row() -> None:
    habits = LanguageHabits()
    assert habits.find(b"a") is None
    for num_times in 1, 2, 3, MAX_TIMES, MAX_TIMES:
        habits.note(b"a", 7)
        assert habits.find(b"a") == Habit(7, num_times)
    habits.note(b"a", 8)
    assert habits.find(b"a") == Habit(8, 1)
    assert habits.find(b"b") is None


def test_the_place_that_was_met_longest_ago_goes() -> None:
    habits = LanguageHabits()
    for number in range(MAX_HABITS):
        habits.note(b"%d" % number, number)
    habits.note(b"0", 0)
    habits.note(b"new", 1)
    assert habits.find(b"0") == Habit(0, 2)
    assert habits.find(b"1") is None
    assert habits.find(b"2") == Habit(2, 1)
