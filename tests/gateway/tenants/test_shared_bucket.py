"""A bucket that processes share: by hand, and any traffic of any processes against the bound that is promised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.bucket import MINUTE_S
from gateway.tenants.shared_bucket import ADVANCE_S, LATELY_S, HeardRate, RateVerdict, SharedBucket, Telling
from tests.gateway.tenants.rates_in_memory import KeptBucket

NUM_PROCESSES = 4
LARGEST = 5  # that one request takes


def verdict(bucket: SharedBucket, amount: float, now: float) -> RateVerdict:
    return bucket.verdict(amount, now, is_alone=False)


def test_the_first_request_goes_on_and_the_next_asks() -> None:
    bucket = SharedBucket(60, now=0.0)
    assert verdict(bucket, 1, 0.0) is RateVerdict.GOES_ON
    bucket.take(1, 0.0)
    assert bucket.is_urgent(0.0)
    assert verdict(bucket, 1, 0.0) is RateVerdict.ASKS
    assert bucket.verdict(1, 0.0, is_alone=True) is RateVerdict.GOES_ON
    assert bucket.tell(0.0) == Telling(taken=1, level=59, keeps=0, wants_advance=True)
    bucket.hear(HeardRate(free=39, advance=19.5), 0.0)
    assert bucket.level(0.0) == 39, "others have taken twenty"
    bucket.take(9, 0.0)
    assert not bucket.is_urgent(0.0)
    bucket.take(1, 0.0)
    assert bucket.is_urgent(0.0), "more than half of the advance is used"


def test_a_request_larger_than_what_is_left_of_the_advance_goes_on_and_the_next_asks() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(1, 0.0)
    bucket.tell(0.0)
    bucket.hear(HeardRate(free=40, advance=20), 0.0)
    assert verdict(bucket, 40, 0.0) is RateVerdict.GOES_ON
    bucket.take(30, 0.0)
    assert verdict(bucket, 1, 0.0) is RateVerdict.ASKS


def test_while_a_telling_is_under_way_half_of_what_is_left_of_the_advance_is_used() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(1, 0.0)
    bucket.tell(0.0)
    bucket.hear(HeardRate(free=40, advance=20), 0.0)
    bucket.take(4, 0.0)
    assert bucket.tell(0.0) == Telling(taken=4, level=36, keeps=8, wants_advance=True)
    bucket.take(7, 0.0)
    assert verdict(bucket, 1, 0.0) is RateVerdict.GOES_ON
    bucket.take(1, 0.0)
    assert verdict(bucket, 1, 0.0) is RateVerdict.ASKS
    bucket.hear(HeardRate(free=36, advance=18), 0.0)
    assert bucket.level(0.0) == 28, "what was taken meanwhile goes off"
    assert bucket.tell(0.0) == Telling(taken=8, level=28, keeps=5, wants_advance=True)


def test_an_advance_that_nobody_uses_is_given_back() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(1, 0.0)
    bucket.tell(0.0)
    bucket.hear(HeardRate(free=40, advance=20), 0.0)
    assert not bucket.is_settled
    assert bucket.tell(0.0) == Telling(taken=0, level=40, keeps=0, wants_advance=False)
    bucket.hear(HeardRate(free=40, advance=0), 0.0)
    assert bucket.is_settled


def test_what_may_not_have_been_told_is_told_again() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(3, 0.0)
    bucket.tell(0.0)
    bucket.take(2, 0.0)
    bucket.hear_nothing()
    assert bucket.tell(0.0) == Telling(taken=5, level=55, keeps=0, wants_advance=True)


def test_nobody_is_refused_by_what_was_heard_long_ago() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(1, 0.0)
    bucket.tell(0.0)
    bucket.hear(HeardRate(free=-9, advance=0), 0.0)
    assert verdict(bucket, 1, LATELY_S) is RateVerdict.REFUSED
    assert verdict(bucket, 1, LATELY_S + 0.1) is RateVerdict.ASKS
    assert bucket.verdict(1, LATELY_S + 0.1, is_alone=True) is RateVerdict.REFUSED, "nobody can be asked"


def test_an_old_advance_is_none() -> None:
    bucket = SharedBucket(60, now=0.0)
    bucket.take(1, 0.0)
    bucket.tell(0.0)
    bucket.hear(HeardRate(free=40, advance=20), 0.0)
    bucket.take(1, 0.0)
    assert verdict(bucket, 1, ADVANCE_S) is RateVerdict.GOES_ON
    assert verdict(bucket, 1, ADVANCE_S + 0.1) is RateVerdict.ASKS


class Processes:
    """Some that share a bucket, and what all of them have taken by the clock of the bucket itself."""

    def __init__(self, per_minute: int) -> None:
        self.kept = KeptBucket(per_minute)
        self.buckets = [SharedBucket(per_minute, 0.0) for _ in range(NUM_PROCESSES)]
        self.answers: dict[int, HeardRate] = {}
        """Of processes whose telling is under way: Redis has done it."""
        self.left = float(per_minute)
        self.now = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.left = min(self.kept.per_minute, self.left + seconds * self.kept.per_minute / MINUTE_S)

    def ask(self, process: int, amount: int) -> RateVerdict:
        bucket = self.buckets[process]
        found = verdict(bucket, amount, self.now)
        if found is RateVerdict.GOES_ON:
            bucket.take(amount, self.now)
            self.left -= amount
        else:
            bucket.ask()
        return found

    def begin_telling(self, process: int) -> None:
        if process not in self.answers:
            self.answers[process] = self.kept.tell(process, self.buckets[process].tell(self.now), self.now)

    def end_telling(self, process: int) -> None:
        if process in self.answers:
            self.buckets[process].hear(self.answers.pop(process), self.now)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, NUM_PROCESSES - 1), st.integers(1, LARGEST)),
        st.tuples(st.just("ask"), st.integers(0, NUM_PROCESSES - 1), st.just(1)),
        st.tuples(st.just("begin"), st.integers(0, NUM_PROCESSES - 1), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, NUM_PROCESSES - 1), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([10, 300, 600])),
    ),
    max_size=120,
)


@given(per_minute=st.integers(1, 60), steps=steps)
def test_all_processes_together_take_less_than_one_request_each_beyond_the_limit(
    per_minute: int, steps: list[tuple[str, int, int]]
) -> None:
    """Whatever is under way, and whoever has heard what: as long as Redis answers within the life of an advance."""
    all_of_them, begun_s = Processes(per_minute), dict[int, float]()
    for step, process, number in steps:
        if step == "wait":
            all_of_them.wait(number / 1000)
            for late in [one for one, since_s in begun_s.items() if all_of_them.now - since_s > LATELY_S]:
                all_of_them.end_telling(late)
                del begun_s[late]
        elif step == "begin":
            all_of_them.begin_telling(process)
            begun_s.setdefault(process, all_of_them.now)
        elif step == "end":
            all_of_them.end_telling(process)
            begun_s.pop(process, None)
        else:
            all_of_them.ask(process, number)
        assert all_of_them.left >= -NUM_PROCESSES * LARGEST


@given(order=st.lists(st.integers(0, NUM_PROCESSES - 1), min_size=40, max_size=40))
def test_of_forty_requests_for_twenty_no_more_than_one_a_process_goes_on_beyond(order: list[int]) -> None:
    all_of_them, num_taken = Processes(20), 0
    for process in order:
        for _ in range(2):
            if all_of_them.ask(process, 1) is RateVerdict.GOES_ON:
                num_taken += 1
                break
            all_of_them.begin_telling(process)
            all_of_them.end_telling(process)
    assert num_taken <= 20 + NUM_PROCESSES


def test_one_process_after_another_has_all_that_is_there() -> None:
    all_of_them = Processes(8)
    taken = 0
    for _ in range(12):
        while all_of_them.ask(0, 1) is RateVerdict.GOES_ON:
            taken += 1
        all_of_them.begin_telling(0)
        all_of_them.end_telling(0)
    assert taken == 8, "alone, it loses nothing"
    all_of_them.wait(LATELY_S)
    assert all_of_them.ask(1, 1) is RateVerdict.GOES_ON, "it has heard nothing: the one beyond the limit"
    all_of_them.begin_telling(1)
    all_of_them.end_telling(1)
    assert all_of_them.ask(1, 1) is RateVerdict.REFUSED
