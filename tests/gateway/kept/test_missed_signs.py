"""Who is taken for dead: a process that has shown nothing new at as many looks as make it sure."""

from __future__ import annotations

from gateway.kept.missed_signs import MISSED_LOOKS, MissedSigns


def test_one_that_shows_nothing_new_is_missed() -> None:
    missed = MissedSigns("own")
    for _ in range(MISSED_LOOKS):
        assert missed.look({"own": "1", "other": "7"}) == []
    assert missed.look({"own": "1", "other": "7"}) == [("other", "7")]


def test_a_sign_in_time_begins_anew() -> None:
    missed = MissedSigns("own")
    for _ in range(MISSED_LOOKS):
        assert missed.look({"other": "7"}) == []
    for _ in range(MISSED_LOOKS):
        assert missed.look({"other": "8"}) == []
    assert missed.look({"other": "8"}) == [("other", "8")]


def test_one_that_has_left_and_comes_back_is_new() -> None:
    missed = MissedSigns("own")
    for _ in range(MISSED_LOOKS):
        missed.look({"other": "7"})
    assert missed.look({}) == []
    assert missed.look({"other": "7"}) == []


def test_time_without_looks_says_nothing() -> None:
    """Where Redis is away nobody can show a sign; and nobody looks."""
    missed = MissedSigns("own")
    assert [missed.look({"other": str(sign)}) for sign in (1, 1, 2)] == [[], [], []]
