"""Shares of a batch: what they hold in a step, what makes up what, and what the coverage of a buffer knows of that."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.graph.coverage import Coverage, box
from gpu_node.graph.share import (
    DECODE,
    LOCAL,
    PREFILL,
    REMOTE,
    WHOLE,
    BatchLayout,
    Part,
    Range,
    Share,
    share_of,
)
from gpu_node.graph.step_shape import SequencePart, StepShape
from tests.gpu_node.batch_cuts import random_shares

PARTS = (WHOLE, PREFILL, DECODE, LOCAL, REMOTE)


def sequences(share: Share, num_rows: list[int], num_remote: int = 0) -> list[int]:
    return list(BatchLayout(num_rows, num_remote).sequences(share))


def half(index: int, part: Part = Part.ALL) -> Share:
    return share_of(Range(part)).cut(index, 2)


# --- in a step --------------------------------------------------------------------------------------------------------


def test_a_batch_is_cut_between_sequences_as_evenly_as_they_allow() -> None:
    assert [sequences(half(index), [1, 1, 1, 1, 1]) for index in range(2)] == [[0, 1, 2], [3, 4]]
    assert [sequences(half(index), [5, 1, 1, 1]) for index in range(2)] == [[0], [1, 2, 3]]
    # one long prompt: no part but the first has anything
    assert [sequences(WHOLE.cut(index, 3), [64]) for index in range(3)] == [[0], [], []]
    assert sequences(half(1), []) == []


def test_phases_and_residences_are_runs_of_sequences() -> None:
    step = [7, 1, 2, 1, 1, 1, 1], 2  # the first single row stands before a prompt
    found = {str(share): sequences(share, *step) for share in PARTS}
    assert sequences(PREFILL & REMOTE, *step) == []
    assert found == {
        "all": [0, 1, 2, 3, 4, 5, 6],
        "prefill": [0, 1, 2],
        "decode": [3, 4, 5, 6],
        "local": [0, 1, 2, 3, 4],
        "remote": [5, 6],
    }
    assert sequences(LOCAL & DECODE, *step) == [3, 4]
    assert [sequences(half(index, Part.DECODE), *step) for index in range(2)] == [[3, 4], [5, 6]]
    assert [sequences(half(index, Part.LOCAL), *step) for index in range(2)] == [[0], [1, 2, 3, 4]]
    # the first half of all 14 rows is the long prompt and half of the batch; none of it decodes
    assert [sequences(half(index) & DECODE, *step) for index in range(2)] == [[], [3, 4, 5, 6]]
    assert [sequences(half(index) & PREFILL, *step) for index in range(2)] == [[0], [1, 2]]


def test_a_step_of_one_phase_or_one_residence_has_nothing_of_the_other() -> None:
    assert [sequences(share, [1, 1]) for share in PARTS] == [[0, 1], [], [0, 1], [0, 1], []]
    assert [sequences(share, [3, 2]) for share in PARTS] == [[0, 1], [0, 1], [], [0, 1], []]
    assert [sequences(share, [1, 1], 2) for share in PARTS] == [[0, 1], [], [0, 1], [], [0, 1]]
    assert [sequences(share, []) for share in PARTS] == [[]] * 5
    # a prompt elsewhere: all is prefill that does not stand behind it
    assert [sequences(share, [1, 3, 1], 2) for share in PARTS] == [[0, 1, 2], [0, 1], [2], [0], [1, 2]]


def test_rows_and_draws_are_those_of_the_sequences() -> None:
    layout = BatchLayout([4, 3, 1, 1], 1)
    shares = (PREFILL, LOCAL & DECODE, REMOTE, half(1))
    assert [layout.rows(share) for share in shares] == [slice(0, 7), slice(7, 8), slice(8, 9), slice(7, 9)]
    assert [layout.draws(share, [6, 7, 8]) for share in shares] == [slice(0, 1), slice(1, 2), slice(2, 3), slice(1, 3)]


def test_a_step_that_cannot_be_is_refused() -> None:
    with pytest.raises(AssertionError, match="no more sequences are remote than there are"):
        BatchLayout([1], 2)


def test_a_share_of_a_step_has_its_sequences_and_its_part_of_the_draws() -> None:
    step = StepShape((SequencePart(0, 4), SequencePart(9, 1), SequencePart(8, 1), SequencePart(7, 1)), 3, num_remote=2)
    assert step.part(LOCAL) == StepShape(step.parts[:2], 1)
    assert step.part(REMOTE) == StepShape(step.parts[2:], 2, num_remote=2)
    assert step.part(DECODE) == StepShape(step.parts[1:], 3, num_remote=2)


# --- among shares -----------------------------------------------------------------------------------------------------


def test_a_share_is_written_in_one_way_only() -> None:
    assert WHOLE.cut(0, 1) == WHOLE & WHOLE == share_of(Range()) == WHOLE
    assert REMOTE & DECODE == DECODE & REMOTE
    assert WHOLE.cut(1, 2).cut(0, 2) == share_of(Range(start=Fraction(1, 2), end=Fraction(3, 4)))
    assert half(0) & half(1, Part.LOCAL) == half(1, Part.LOCAL) & half(0)
    assert half(0) & WHOLE.cut(0, 3) == WHOLE.cut(0, 3)
    assert [str(one) for one in (half(0) & DECODE, half(1, Part.LOCAL))] == ["all 0–1/2 of decode", "local 1/2–1"]


def test_what_no_step_has_is_known() -> None:
    assert [share.is_possible for share in PARTS] == [True] * 5
    assert (LOCAL & DECODE).is_possible
    assert not (PREFILL & REMOTE & DECODE).is_possible
    assert not (LOCAL & REMOTE.cut(0, 2)).is_possible
    assert not (half(0) & half(1)).is_possible
    assert (half(0, Part.LOCAL) & half(1)).is_possible


def test_a_share_lies_in_another_where_that_holds_in_every_step() -> None:
    assert [WHOLE.contains(share) for share in PARTS] == [True] * 5
    assert [LOCAL.contains(share) for share in PARTS] == [False, False, False, True, False]
    assert DECODE.contains(REMOTE & DECODE)
    assert REMOTE.contains(half(0, Part.REMOTE))
    assert LOCAL.contains(LOCAL & half(0))
    assert not half(0).contains(half(0, Part.LOCAL))  # it does, but no range says so
    assert not half(0, Part.DECODE).contains(REMOTE)


numbers_of = st.integers(0, 1 << 20).map(random.Random)
layouts = st.tuples(st.lists(st.integers(1, 4), max_size=9), st.integers(0, 4)).map(
    lambda given: ([*given[0], *[1] * 3], given[1] % 4)
) | st.lists(st.integers(1, 9), max_size=9).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(0, len(rows))))


@given(numbers_of, layouts)
def test_shares_that_make_up_a_batch_have_each_sequence_once(
    numbers: random.Random, step: tuple[list[int], int]
) -> None:
    found = sorted(sequence for share in random_shares(numbers) for sequence in sequences(share, *step))
    assert found == list(range(len(step[0])))


@given(numbers_of, st.integers(1, 4), layouts)
def test_parts_of_a_share_lie_in_it_and_make_it_up(
    numbers: random.Random, count: int, step: tuple[list[int], int]
) -> None:
    for share in random_shares(numbers):
        parts = [share.cut(index, count) for index in range(count)]
        assert [one for part in parts for one in sequences(part, *step)] == sequences(share, *step)
        assert all(share.contains(part) for part in parts)


# --- coverage ---------------------------------------------------------------------------------------------------------


def covered(*written: Share, wanted: Share = WHOLE) -> bool:
    """Of 4 columns, all read, and written once as a whole and once column by column."""
    whole, split = Coverage(), Coverage()
    for share in written:
        whole.add(box(0, 4, share))
        for column in range(4):
            split.add(box(column, 1, share))
    found = whole.covers(box(0, 4, wanted))
    assert split.covers(box(0, 4, wanted)) == found
    return found


def test_a_residence_or_phase_and_its_other_are_the_whole() -> None:
    assert covered(LOCAL, REMOTE)
    assert covered(PREFILL, DECODE)
    assert covered(PREFILL, LOCAL & DECODE, REMOTE)
    assert covered(PREFILL, LOCAL & DECODE, REMOTE & DECODE)
    assert not covered(LOCAL, DECODE)
    assert not covered(PREFILL, REMOTE)


def test_cuts_within_a_part_make_up_the_part() -> None:
    halves = [half(index, Part.LOCAL) for index in range(2)]
    assert covered(*halves, wanted=LOCAL)
    assert covered(*halves, REMOTE)
    assert covered(*halves, wanted=PREFILL & LOCAL)
    assert covered(halves[0], PREFILL, LOCAL & DECODE, wanted=LOCAL)
    assert not covered(*halves, wanted=PREFILL)
    assert not covered(halves[0], REMOTE.cut(1, 2))
    assert not covered(*halves, REMOTE.cut(0, 2))


def test_cuts_of_different_parts_have_no_order() -> None:
    # half of the local rows and the later half of all: what lies between depends on how many are remote
    assert not covered(half(0, Part.LOCAL), half(1))
    assert covered(half(0) & DECODE, half(1) & DECODE, wanted=DECODE)
    assert covered(half(0) & DECODE, half(1) & DECODE, PREFILL)
    assert covered(half(0) & DECODE, half(0) & PREFILL, wanted=half(0))
    assert covered(half(0) & LOCAL, half(1), wanted=LOCAL)
    assert not covered(half(0) & DECODE, half(1), wanted=half(0))


@given(numbers_of, st.data())
def test_what_makes_up_a_share_covers_it_and_nothing_less_does(numbers: random.Random, data: st.DataObject) -> None:
    shares = list(random_shares(numbers))
    assert covered(*shares)
    missing = data.draw(st.sampled_from(shares))
    rest = [share for share in shares if share is not missing]
    assert not covered(*rest, wanted=missing)


@given(st.lists(numbers_of.map(lambda numbers: numbers.choice(list(random_shares(numbers)))), max_size=6), layouts)
def test_what_is_covered_is_written_in_every_step(shares: list[Share], step: tuple[list[int], int]) -> None:
    written = {sequence for share in shares for sequence in sequences(share, *step)}
    for wanted in (*PARTS, half(0), half(1, Part.LOCAL)):
        if covered(*shares, wanted=wanted):
            assert written.issuperset(sequences(wanted, *step))
