"""Who is alive, by who was heard."""

from __future__ import annotations

import msgspec

from shared.service.liveness import Liveness


def heard(**when: float) -> Liveness:
    return Liveness(timeout_s=10.0, heard_s=when)


def test_it_wakes_when_the_longest_silent_is_dead() -> None:
    assert Liveness(timeout_s=10.0).wake_at is None
    alive = heard(a=100.0, b=103.0)
    assert alive.wake_at == 110.0
    alive.hear("a", 105.0)
    assert alive.wake_at == 113.0


def test_silence_for_the_timeout_is_death_and_not_a_moment_before() -> None:
    alive = heard(a=100.0, b=108.0)
    assert alive.expire(109.999) == []
    assert alive.expire(110.0) == ["a"]
    assert alive.expire(110.0) == [], "the dead are forgotten"
    assert alive.heard_s == {"b": 108.0}


def test_the_dead_are_told_in_the_order_in_which_they_were_met() -> None:
    alive = heard(c=1.0, a=3.0, b=2.0, live=100.0)
    assert alive.expire(100.0) == ["c", "a", "b"]


def test_when_everybody_is_silent_all_get_one_more_timeout() -> None:
    alive = heard(a=100.0, b=101.0)
    assert alive.expire(120.0) == [], "the fault is more likely in between"
    assert alive.wake_at == 130.0
    assert alive.expire(129.0) == []
    assert alive.expire(130.0) == ["a", "b"]
    assert alive.wake_at is None


def test_the_second_chance_saves_those_who_come_back() -> None:
    alive = heard(a=100.0, b=101.0)
    alive.expire(120.0)
    for now in (121.0, 125.0, 129.0):
        alive.hear("b", now)
    assert alive.expire(130.0) == ["a"]
    assert alive.heard_s == {"b": 129.0}


def test_the_first_who_is_heard_after_an_outage_does_not_bury_the_others() -> None:
    alive = heard(a=100.0, b=100.5)
    alive.hear("b", 111.0)
    assert alive.expire(111.1) == [], "a is about to be heard as well"
    alive.hear("b", 115.0)
    alive.hear("b", 119.0)
    assert alive.expire(121.0) == ["a"]


def test_an_outage_shorter_than_the_timeout_buries_nobody_either() -> None:
    alive = heard(a=100.0, b=104.0)
    assert alive.expire(110.0) == [], "nobody was heard for 6 s: the line was down when a's time ran out"
    alive.hear("a", 110.5)
    alive.hear("b", 110.9)
    assert alive.expire(114.0) == []


def test_a_sign_of_life_earns_the_next_second_chance() -> None:
    alive = heard(a=100.0)
    assert alive.expire(110.0) == []
    alive.hear("a", 115.0)
    assert alive.expire(125.0) == []
    assert alive.expire(135.0) == ["a"]


def test_whoever_said_goodbye_is_not_waited_for() -> None:
    alive = heard(a=100.0, b=103.0)
    alive.forget("a")
    alive.forget("never heard")
    assert alive.wake_at == 113.0


def test_it_survives_in_a_snapshot() -> None:
    alive = heard(a=100.0)
    alive.expire(110.0)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(alive), type=Liveness)
    assert again == alive
    assert again.expire(120.0) == ["a"], "the second chance was spent before"


def test_two_do_not_share_what_they_heard() -> None:
    one, other = Liveness(timeout_s=1.0), Liveness(timeout_s=1.0)
    one.hear("a", 0.0)
    assert other.heard_s == {}
