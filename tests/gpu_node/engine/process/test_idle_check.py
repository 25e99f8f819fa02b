"""An engine's books are looked at when it has nothing to do, the seldomer the longer that takes."""

from __future__ import annotations

import pytest

from gpu_node.engine.process.idle_check import IdleCheck


def test_a_look_of_a_sixteenth_of_a_second_is_taken_once_a_minute() -> None:
    now_s, looks = 0.0, []

    def check() -> None:
        nonlocal now_s
        looks.append(now_s)
        now_s += 0.0625

    idle = IdleCheck(check, lambda: now_s)
    idle.hear_idle()
    assert looks == [0.0], "the first idle moment"
    for moment_s in (1.0, 62.5, 62.5625, 63.0):
        now_s = moment_s
        idle.hear_idle()
    assert looks == [0.0, 62.5625], "0.0625 s behind the first, and a thousand times as long"


def test_a_look_that_takes_no_time_is_taken_at_each_idle_moment() -> None:
    looks: list[str] = []
    idle = IdleCheck(lambda: looks.append("look"), lambda: 5.0)
    for _ in range(3):
        idle.hear_idle()
    assert looks == ["look"] * 3


def test_books_that_do_not_balance_end_the_engine() -> None:
    def check() -> None:
        raise AssertionError("a block was lost")

    with pytest.raises(AssertionError, match="a block was lost"):
        IdleCheck(check, lambda: 0.0).hear_idle()
