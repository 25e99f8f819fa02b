"""The log of a response is read as it was written, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.kept.response_log import LogReader, ResponseLogEntry, events_after, read_log, written
from shared.messages.requests.token_logprob import TokenLogprob


def log_of(sizes: list[int]) -> list[ResponseLogEntry]:
    """Entries of so many events each, numbered through; an event is its number."""
    entries: list[ResponseLogEntry] = []
    for size in sizes:
        first = entries[-1].next if entries else 0
        scores = [TokenLogprob(-0.5, [(7, -0.25)])] * size
        events = [b"%d" % number for number in range(first, first + size)]
        entries.append(ResponseLogEntry(first, events, list(range(size)), scores, cached_tokens=size or None))
    return entries


@given(st.lists(st.integers(0, 4), max_size=6), st.data())
def test_pieces_make_the_whole(sizes: list[int], data: st.DataObject) -> None:
    entries = log_of(sizes)
    whole = b"".join(map(written, entries))
    assert read_log(whole) == entries
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    reader = LogReader()
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert [entry for piece in pieces for entry in reader.read(piece)] == entries


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(-1, 30))
def test_a_stream_goes_on_behind_any_event(sizes: list[int], after: int) -> None:
    assert events_after(log_of(sizes), after) == [b"%d" % number for number in range(after + 1, sum(sizes))]


def test_what_is_cut_is_not_read() -> None:
    whole = written(ResponseLogEntry(0, [b"a"]))
    assert read_log(whole[:-1]) == []


@pytest.mark.parametrize("at_end", [False, True])
def test_the_last_entry_says_so(at_end: bool) -> None:
    [entry] = read_log(written(ResponseLogEntry(3, [b"a", b"b"], is_last=at_end)))
    assert (entry.is_last, entry.next) == (at_end, 5)
