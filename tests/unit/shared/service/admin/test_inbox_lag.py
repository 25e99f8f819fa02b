"""How old what is not handled is, as it was seen."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from shared.service.admin.inbox_lag import LATE_S, MAX_MARKS, InboxLag, InboxLagCollector


def test_nothing_is_known_before_the_first_look() -> None:
    assert InboxLag().age_s(5.0) is None


def test_what_is_handled_has_no_age() -> None:
    lag = InboxLag()
    lag.see(b"0-0", b"0-0", 10.0)
    assert lag.age_s(10.0) == 0.0
    lag.see(b"1000-0", b"1000-0", 10.5)
    assert lag.age_s(11.0) == 0.0


def test_the_oldest_that_is_not_handled_counts_from_when_it_was_seen() -> None:
    lag = InboxLag()
    lag.see(b"1000-0", b"900-0", 10.0)
    lag.see(b"2000-0", b"900-0", 13.0)
    assert lag.age_s(13.5) == 3.0
    lag.see(b"2000-1", b"1000-0", 15.0)  # the first is handled, the second not
    assert lag.age_s(15.0) == 2.0
    lag.see(b"2000-1", b"2000-1", 16.0)
    assert lag.age_s(16.0) == 0.0


def test_it_goes_on_while_nothing_comes_and_nothing_is_handled() -> None:
    lag = InboxLag()
    for second in range(60):
        lag.see(b"1000-0", b"900-0", float(second))
    assert lag.age_s(59.0) == 59.0


def test_redis_that_does_not_answer_adds_to_it() -> None:
    lag = InboxLag()
    lag.see(b"1000-0", b"1000-0", 10.0)
    assert lag.age_s(10.0 + LATE_S) == 0.0
    assert lag.age_s(40.0) == 30.0
    lag.see(b"1000-0", b"900-0", 40.0)
    lag.see(b"1000-0", b"900-0", 42.0)
    assert lag.age_s(50.0) == 10.0


def test_ids_leap_with_redis_s_clock_and_the_age_does_not() -> None:
    lag = InboxLag()
    lag.see(b"1000-0", b"900-0", 10.0)
    lag.see(b"600000000-0", b"900-0", 11.0)
    assert lag.age_s(11.0) == 1.0


def test_a_log_that_has_lost_its_end_goes_on_with_smaller_ids() -> None:
    lag = InboxLag()
    lag.see(b"5000-0", b"900-0", 10.0)
    lag.see(b"2000-0", b"900-0", 20.0)
    assert lag.age_s(20.0) == 0.0, "the entry that was waited for is gone; another has just been seen"
    lag.see(b"2000-0", b"900-0", 21.0)
    assert lag.age_s(21.0) == 1.0


def test_hours_behind_are_remembered_in_bounded_room() -> None:
    lag = InboxLag()
    num_looks = 8 * MAX_MARKS
    for look in range(num_looks):
        lag.see(b"%d-0" % (1000 + look), b"900-0", float(look))
    assert lag.age_s(num_looks - 1.0) == num_looks - 1.0
    lag.see(b"%d-0" % (1000 + num_looks), b"%d-0" % (1000 + num_looks // 2), float(num_looks))
    age_s = lag.age_s(float(num_looks))
    assert age_s is not None
    assert 0.75 <= age_s / (num_looks / 2) <= 1, "handled up to the middle; moments are told apart less finely"


def test_the_metric_is_of_the_moment_it_is_asked_for() -> None:
    lag, now_s = InboxLag(), [10.0]
    registry = CollectorRegistry()
    registry.register(InboxLagCollector("scheduler", lag, clock=lambda: now_s[0]))
    name, labels = "treadle_inbox_oldest_unhandled_seconds", {"service": "scheduler"}
    assert registry.get_sample_value(name, labels) is None
    lag.see(b"1000-0", b"900-0", 10.0)
    assert registry.get_sample_value(name, labels) == 0.0
    now_s[0] = 25.0
    assert registry.get_sample_value(name, labels) == 15.0
