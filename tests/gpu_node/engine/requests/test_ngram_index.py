"""Places where the last tokens of a text stood before, by hand and beside a search of the whole text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpu_node.engine.requests.ngram_index import (
    MAX_INDEXED_TOKENS,
    MAX_NGRAM,
    MIN_NGRAM,
    TOKENS_AT_ONCE,
    Match,
    NgramIndex,
)


def indexed(token_ids: Sequence[int]) -> NgramIndex:
    index = NgramIndex()
    while not index.follow(token_ids):
        pass
    return index


def test_the_place_behind_the_longest_common_end() -> None:
    text = [1, 2, 3, 4, 9, 3, 4, 8, 2, 3, 4]
    # 3, 4 stood before places 4 and 7; before place 4 there is a 2 as well, as at the end
    assert indexed(text).find(text) == Match(place=4, num_tokens=3)


def test_of_equals_the_newest() -> None:
    text = [5, 6, 1, 5, 6, 2, 5, 6]
    assert indexed(text).find(text) == Match(place=5, num_tokens=2)


def test_more_than_four_tokens_count_as_four() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6]
    assert indexed(text).find(text) == Match(place=6, num_tokens=4)


def test_a_text_that_runs_on_in_itself() -> None:
    text = [7, 7, 7]
    assert indexed(text).find(text) == Match(place=2, num_tokens=2)


def test_nothing_where_they_never_stood_before() -> None:
    for text in ([], [1], [1, 2], [1, 2, 3, 2, 4]):
        assert indexed(text).find(text) is None


def test_a_long_text_is_indexed_part_by_part_and_its_beginning_left_out() -> None:
    text = [1, 2, 3, *range(10, 10 + MAX_INDEXED_TOKENS), 1, 2]
    index = NgramIndex()
    num_calls = 1
    while not index.follow(text):
        num_calls += 1
    assert num_calls == MAX_INDEXED_TOKENS // TOKENS_AT_ONCE
    assert index.find(text) is None


def longest(text: Sequence[int]) -> Match | None:
    """By trying all places."""
    found = None
    for place in range(MIN_NGRAM, len(text)):
        num = next(
            (
                num
                for num in range(min(MAX_NGRAM, place), MIN_NGRAM - 1, -1)
                if text[place - num : place] == text[-num:]
            ),
            0,
        )
        if num and (found is None or num >= found.num_tokens):
            found = Match(place, num)
    return found


@given(st.lists(st.integers(0, 2), max_size=16), st.lists(st.integers(0, 2), max_size=12))
def test_it_finds_what_a_search_finds_however_the_text_has_grown(prompt: list[int], output: list[int]) -> None:
    text = list(prompt)
    index = NgramIndex()
    assert index.follow(text)
    for token in output:
        text.append(token)
        assert index.follow(text)
        assert index.find(text) == longest(text)
