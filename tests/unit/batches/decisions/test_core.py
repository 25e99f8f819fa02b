from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.batches.decisions.core import BatchCore
from services.batches.decisions.open_batch import MAX_PAUSE_S, RETRY_S
from services.batches.decisions.verdict import AnswerVerdict
from shared.messages.batches.batch_lines import CANCELLED, EXPIRED, REVOKED
from shared.messages.batches.batches import BatchCounts

DAY = 86_400.0


def core_of(max_inflight: int = 4, **weights: float) -> BatchCore:
    return BatchCore(max_inflight, lambda tenant: weights.get(tenant, 1.0))


def taken(core: BatchCore, now: float = 0.0) -> list[tuple[str, int]]:
    return [(one.batch, one.number) for one in core.take(now)]


def test_requests_go_out_in_their_order_and_no_more_at_a_time_than_allowed() -> None:
    core = core_of(3)
    core.begin("a", "acme", DAY, 5)

    assert taken(core) == [("a", 0), ("a", 1), ("a", 2)]
    assert taken(core) == []
    core.answered("a", 1, 200, None, 1.0)
    assert taken(core, 1.0) == [("a", 3)]


def test_the_batch_whose_window_ends_first_goes_first() -> None:
    core = core_of(3)
    core.begin("late", "acme", 2 * DAY, 2)
    core.begin("soon", "acme", DAY, 2)

    assert taken(core) == [("soon", 0), ("soon", 1), ("late", 0)]


def test_tenants_go_by_turns_by_their_weights_whatever_their_deadlines() -> None:
    core = core_of(6, big=2.0)
    core.begin("b", "big", 2 * DAY, 9)
    core.begin("s", "small", DAY, 9)

    assert sorted(taken(core)) == [("b", 0), ("b", 1), ("b", 2), ("b", 3), ("s", 0), ("s", 1)]


def test_a_request_is_promised_what_is_left_of_the_window() -> None:
    core = core_of()
    core.begin("a", "acme", 1024.0 + 100.0, 2)

    assert [one.deadline_s for one in core.take(100.0)] == [1024.0, 1024.0]


def test_a_refused_request_comes_again_when_the_gateway_said_and_before_the_others() -> None:
    core = core_of(1)
    core.begin("a", "acme", DAY, 2)
    assert taken(core) == [("a", 0)]

    assert core.answered("a", 0, 429, 5.0, 10.0) is AnswerVerdict.REFUSED

    assert core.wakes_s(10.0) == 15.0
    assert taken(core, 14.9) == []
    assert taken(core, 15.0) == [("a", 0)]


@pytest.mark.parametrize(("said_s", "pause_s"), [(None, RETRY_S), (3600.0, MAX_PAUSE_S), (0.0, 0.0)])
def test_a_pause_is_bounded(said_s: float | None, pause_s: float) -> None:
    core = core_of(1)
    core.begin("a", "acme", DAY, 1)
    core.take(0.0)

    core.answered("a", 0, 503, said_s, 10.0)

    assert core.wakes_s(10.0) == 10.0 + pause_s


def test_a_request_that_fails_for_ever_has_three_tries() -> None:
    core = core_of(1)
    core.begin("a", "acme", DAY, 2)
    verdicts, now = [], 0.0
    for _ in range(3):
        assert taken(core, now) == [("a", 0)]
        verdicts.append(core.answered("a", 0, 500, None, now))
        now += RETRY_S

    assert verdicts == [AnswerVerdict.RETRIED, AnswerVerdict.RETRIED, AnswerVerdict.FAILED]
    assert taken(core, now) == [("a", 1)]


def test_a_batch_is_done_when_each_request_has_an_answer_or_an_error() -> None:
    core = core_of()
    core.begin("a", "acme", DAY, 2)
    core.take(0.0)
    core.answered("a", 0, 200, None, 1.0)
    assert core.done() == []

    core.answered("a", 1, 400, None, 1.0)

    (batch,) = core.batches
    assert (core.done(), batch.counts) == (["a"], BatchCounts(total=2, completed=1, failed=1))


def test_when_the_window_is_over_no_more_are_sent_and_the_rest_is_told() -> None:
    core = core_of(2)
    core.begin("a", "acme", 100.0, 4)
    core.take(0.0)
    core.answered("a", 0, 200, None, 1.0)
    assert (core.wakes_s(50.0), core.overdue(99.9), core.overdue(100.0)) == (50.0, [], ["a"])

    core.stop("a", EXPIRED)

    assert (taken(core, 100.0), core.overdue(100.0), core.done()) == ([], [], [])
    core.given_up("a", 1)
    (batch,) = core.batches
    assert (core.done(), batch.unsettled(), batch.stops) == (["a"], [1, 2, 3], EXPIRED)
    batch.settle_rest()
    assert batch.counts == BatchCounts(total=4, completed=1, failed=3)


def test_a_batch_with_all_its_answers_does_not_expire_while_it_is_being_ended() -> None:
    core = core_of()
    core.begin("a", "acme", 100.0, 1)
    core.take(0.0)
    core.answered("a", 0, 200, None, 99.0)

    assert (core.overdue(100.0), core.wakes_s(100.0), core.done()) == ([], None, ["a"])


def test_a_revoked_key_stops_its_batch_and_the_first_reason_stays() -> None:
    core = core_of(2)
    core.begin("a", "acme", DAY, 3)
    core.take(0.0)

    assert core.answered("a", 0, 401, None, 1.0) is AnswerVerdict.REVOKED
    core.stop("a", CANCELLED)

    (batch,) = core.batches
    assert (batch.stops, batch.unsettled(), taken(core, 1.0)) == (REVOKED, [0, 1, 2], [])


def test_what_an_earlier_life_settled_is_not_sent_again() -> None:
    core = core_of(9)
    core.begin("a", "acme", DAY, 5, settled=[(0, True), (3, False), (1, True), (1, True)])

    (batch,) = core.batches
    assert (taken(core), batch.counts) == ([("a", 2), ("a", 4)], BatchCounts(total=5, completed=2, failed=1))


def test_nothing_is_sent_while_answers_cannot_be_written() -> None:
    core = core_of()
    core.begin("a", "acme", DAY, 2)

    core.is_blocked = True
    assert (taken(core), core.wakes_s(5.0)) == ([], DAY)
    core.is_blocked = False
    assert taken(core) == [("a", 0), ("a", 1)]


class Batches(RuleBasedStateMachine):
    """Whatever answers come in whatever order: no request is out twice, none is lost, counts are what was answered."""

    @initialize(most=st.integers(1, 20), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
    def begin(self, most: int, sizes: list[int]) -> None:
        self.most, self.now, self.core = most, 0.0, BatchCore(most, lambda tenant: 1.0 + len(tenant))
        self.out: set[tuple[str, int]] = set()
        self.settled: dict[tuple[str, int], bool] = {}
        self.names = [f"b{number}" for number in range(len(sizes))]
        for name, size in zip(self.names, sizes, strict=True):
            self.core.begin(name, name[-1] * (size % 3), 1000.0 + size, size)

    def _batches(self) -> Iterable[str]:
        return [one.id for one in self.core.batches]

    @rule(seconds=st.floats(0.0, 40.0))
    def send(self, seconds: float) -> None:
        self.now += seconds
        for one in self.core.take(self.now):
            place = (one.batch, one.number)
            assert place not in self.out
            assert place not in self.settled
            self.out.add(place)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), status=st.sampled_from([200, 200, 200, 400, 429, 500, 503]), retry_s=st.floats(0.0, 60.0))
    def answer(self, data: st.DataObject, status: int, retry_s: float) -> None:
        place = data.draw(st.sampled_from(sorted(self.out)))
        self.out.remove(place)
        verdict = self.core.answered(*place, status, retry_s, self.now)
        if verdict in (AnswerVerdict.COMPLETED, AnswerVerdict.FAILED):
            self.settled[place] = verdict is AnswerVerdict.COMPLETED

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(sorted({batch for batch, _ in self.out})))
        self.core.stop(batch, CANCELLED)
        for place in [place for place in self.out if place[0] == batch]:
            self.core.given_up(*place)
            self.out.remove(place)

    @rule()
    def end(self) -> None:
        for batch in self.core.done():
            found = self.core.get(batch)
            assert found is not None
            num_settled = sum(name == batch for name, _ in self.settled)
            assert found.stops or num_settled == found.num_requests
            self.core.end(batch)

    @invariant()
    def books_are_right(self) -> None:
        assert self.core.num_out == len(self.out) <= self.most
        for one in self.core.batches:
            mine = [is_completed for (batch, _), is_completed in self.settled.items() if batch == one.id]
            assert one.out == {number for batch, number in self.out if batch == one.id}
            assert (one.counts.completed, one.counts.failed) == (sum(mine), len(mine) - sum(mine))

    @invariant()
    def something_happens_next(self) -> None:
        """With nothing out, an open batch is done, or has a time at which it is looked after."""
        if not self.out and self._batches():
            assert self.core.done() or self.core.wakes_s(self.now) is not None

    def teardown(self) -> None:
        """In the end, all is answered."""
        if not hasattr(self, "core"):
            return
        for place in sorted(self.out):
            if self.core.answered(*place, 200, None, self.now) is AnswerVerdict.COMPLETED:
                self.settled[place] = True
        for _ in range(200):
            self.now += MAX_PAUSE_S
            for one in self.core.take(self.now):
                self.core.answered(one.batch, one.number, 200, None, self.now)
        assert sorted(self.core.done()) == sorted(self._batches())


TestBatches = Batches.TestCase
TestBatches.settings = settings(max_examples=60, stateful_step_count=40)
