"""A service's time goes on where Redis's clock stands, leaps or goes back, and each replay reads it alike."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.service.log.cluster_clock import STEP_S, STILL_S, ClusterClock, id_order, id_time


class Redis:
    """A clock that may be set, and the ids that it gives: never below the last one."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self._last = (0, 0)

    def add(self) -> bytes:
        ms = int(self.now_s * 1000)
        self._last = (ms, 0) if ms > self._last[0] else (self._last[0], self._last[1] + 1)
        return b"%d-%d" % self._last


class Service:
    """Asks for Redis's clock with each commit, and reads an entry that was appended just before."""

    def __init__(self, redis: Redis, clock: ClusterClock | None = None) -> None:
        self.redis = redis
        self.clock = clock or ClusterClock()
        self.own_s = 1000.0
        self.clock.begin(redis.now_s, self.own_s, None)
        self.log: list[tuple[bytes, float]] = []
        self.marks: dict[bytes, float] = {}

    def wait(self, seconds: float) -> None:
        self.own_s += seconds
        self.redis.now_s += seconds

    def step(self, *, is_tick: bool = False) -> float:
        entry = self.redis.add()
        time_s = self.clock.read(entry, self.own_s, is_tick=is_tick)
        self.log.append((entry, time_s))
        self.marks |= self.clock.take_marks()
        self.clock.compare(self.redis.now_s, self.own_s, self.own_s)
        return time_s

    def run(self, seconds: float, every_s: float = 0.25) -> list[float]:
        times = []
        for _ in range(round(seconds / every_s)):
            self.wait(every_s)
            times.append(self.step())
        return times


def test_ids_are_the_time_while_the_clocks_agree() -> None:
    service = Service(Redis(5000.0))
    assert service.run(1.0) == [5000.25, 5000.5, 5000.75, 5001.0]
    assert service.marks == {}


@pytest.mark.parametrize("step_s", [-600.0, -1.0, 1.0, 600.0])
def test_a_step_moves_no_time_by_more_than_the_clocks_may_differ(step_s: float) -> None:
    redis = Redis(5000.0)
    service = Service(redis)
    service.run(1.0)
    redis.now_s += step_s
    times = service.run(700.0)
    assert times == sorted(times)
    for number, time_s in enumerate(times, start=1):
        assert abs(time_s - (5001.0 + 0.25 * number)) <= STEP_S + 0.25, "and one interval between two entries"
    assert service.marks


def test_a_clock_that_was_set_back_has_ids_that_stand_still_and_a_time_that_does_not() -> None:
    redis = Redis(5000.0)
    service = Service(redis)
    service.step()
    redis.now_s -= 600.0
    service.run(10.0)
    ids = [id_time(entry) for entry, _ in service.log]
    assert set(ids) == {5000.0}
    assert service.clock.now(service.own_s) == pytest.approx(5010.0)


def test_a_tick_that_is_due_has_come_in_time_though_ids_stand_still() -> None:
    redis = Redis(5000.0)
    service = Service(redis)
    service.step()
    redis.now_s -= 600.0
    service.run(1.0)
    service.wait(STILL_S / 2)
    assert service.step(is_tick=True) == pytest.approx(5001.0 + STILL_S / 2)


def test_old_ids_are_no_fault_where_a_service_has_been_away() -> None:
    redis = Redis(5000.0)
    backlog = [redis.add()]
    redis.now_s += 30.0
    service = Service(redis)
    assert service.clock.read(backlog[0], service.own_s) == 5000.0
    assert service.clock.take_marks() == {}


def test_an_answer_that_was_long_on_its_way_is_no_step() -> None:
    clock = ClusterClock()
    clock.begin(5000.0, 10.0, None)
    clock.compare(5000.1, asked_at_s=10.0, told_at_s=13.0)
    assert clock.now(13.0) == 5003.0
    assert clock.read(b"5002000-0", 13.0) == 5002.0
    assert clock.take_marks() == {}


def test_small_differences_are_followed() -> None:
    clock = ClusterClock()
    clock.begin(5000.0, 10.0, None)
    clock.compare(5010.3, asked_at_s=20.0, told_at_s=20.0)
    assert clock.now(21.0) == pytest.approx(5011.3)
    clock.compare(5011.1, asked_at_s=21.0, told_at_s=21.0)
    assert clock.now(21.0) == pytest.approx(5011.1)


def test_a_service_that_begins_goes_by_what_the_others_go_by() -> None:
    clock = ClusterClock()
    clock.begin(5600.0, 10.0, shared_offset_s=-600.0)
    assert clock.now(10.0) == 5000.0
    assert clock.read(b"5601000-0", 11.0) == 5001.0
    assert clock.take_marks() == {b"5601000-0": -600.0}


def test_a_service_that_begins_while_ids_stand_still_does_not_stand_still() -> None:
    clock = ClusterClock(offset_s=0.0, last_s=5000.0)
    clock.begin(4400.0, 10.0, shared_offset_s=None)
    assert clock.read(b"5000000-7", 12.0) == 5002.0


STEPS = st.lists(st.tuples(st.floats(-700, 700), st.floats(0.0, 3.0)), max_size=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(STEPS, st.integers(0, 40))
def test_each_replay_reads_what_was_read_live_from_any_snapshot(steps: list[tuple[float, float]], cut: int) -> None:
    redis = Redis(5000.0)
    service = Service(redis)
    kept: tuple[float, float, int] | None = None
    for step_s, seconds in steps:
        redis.now_s = max(1.0, redis.now_s + step_s)
        for _ in range(round(seconds / 0.25)):
            service.run(0.25)
            if len(service.log) == cut:
                kept = (service.clock.offset_s, service.clock.last_s, cut)
    offset_s, last_s, num_covered = kept or (0.0, 0.0, 0)
    replayed = ClusterClock(offset_s, last_s, service.marks)
    rest = service.log[num_covered:]
    assert [replayed.replay(entry) for entry, _ in rest] == [time_s for _, time_s in rest]
    times = [time_s for _, time_s in service.log]
    assert times == sorted(times)
    assert [entry for entry, _ in service.log] == sorted((entry for entry, _ in service.log), key=id_order)
