"""Equal lines: the first is said, the others are counted, and nothing grows."""

from __future__ import annotations

from shared.telemetry.log_folding import (
    FOLD_S,
    MAX_KINDS,
    MAX_KINDS_OF_EVENT,
    MAX_VALUE_CHARS,
    Folding,
    LogKind,
    Summary,
    kind_of,
    summary_line,
)


def kind(event: str = "no sign of life sent", level: str = "warning", **fields: object) -> LogKind:
    found = kind_of({"event": event, "level": level, **fields})
    assert found is not None
    return found


def test_an_outage_is_one_line_and_then_a_number_every_ten_seconds() -> None:
    folding, refused = Folding(), kind(error="Connection refused")
    said = [at_s for at_s in range(60) if folding.take(refused, 100.0 + at_s / 5)]
    assert said == [0]
    assert folding.due(100.0 + FOLD_S - 0.1) == []
    assert folding.due_s == 100.0 + FOLD_S
    assert folding.due(112.0) == [Summary(refused, 59, 12.0)]
    assert not folding.take(refused, 112.2), "it goes on: that has been said"
    assert folding.due(122.0) == [Summary(refused, 1, 10.0)]
    assert folding.due(140.0) == []
    assert folding.due_s is None, "it is over"
    assert folding.take(refused, 140.0), "and begins anew"


def test_what_was_counted_is_said_when_the_process_ends() -> None:
    folding = Folding()
    assert [folding.take(kind(), 1.0) for _ in range(3)] == [True, False, False]
    assert folding.rest(2.5) == [Summary(kind(), 2, 1.5)]
    assert folding.rest(2.5) == []


def test_lines_of_another_error_event_or_level_are_others() -> None:
    folding = Folding()
    lines = [kind(error="refused"), kind(error="timed out"), kind("unreadable", error="refused"), kind(level="error")]
    assert [folding.take(one, 1.0) for one in lines] == [True] * 4


def test_numbers_times_and_ids_of_a_request_make_no_difference() -> None:
    one = kind("refused", code="saturated", request_id="a", status=429, timestamp="2026-11-23T09:00:00Z", retry_s=0.2)
    assert one == kind("refused", code="saturated", request_id="b", status=429, trace_id="c", retry_s=0.4)
    assert one != kind("refused", code="no_memory", request_id="a", status=429)


def test_an_error_with_a_traceback_is_told_by_its_type() -> None:
    assert kind(exc_info=ValueError("of a"), path="/a") == kind(exc_info=ValueError("of b"), path="/b")
    assert kind(exc_info=ValueError("of a")) != kind(exc_info=KeyError("of a"))
    error = OSError(5, "x")
    assert kind(exc_info=(OSError, error, None)) == kind(exc_info=error)


def test_what_is_no_fault_is_always_said() -> None:
    assert kind_of({"event": "request_finished", "level": "info"}) is None
    assert kind_of(summary_line(Summary(kind(), 7, 10.0))) is None, "a summary is none of the lines that it counts"


def test_a_summary_says_what_and_how_often() -> None:
    line = summary_line(Summary(kind(error="refused", retry_s=0.2), 57, 10.04))
    assert line == {
        "event": "no sign of life sent",
        "level": "warning",
        "error": "refused",
        "num_repeated": 57,
        "repeated_s": 10.0,
    }


def test_whoever_makes_up_texts_makes_no_more_lines() -> None:
    folding = Folding()
    num_said = sum(folding.take(kind("request_refused", param=f"field-{number}"), 1.0) for number in range(10_000))
    assert num_said == MAX_KINDS_OF_EVENT + 1
    [summary] = folding.due(1.0 + FOLD_S)
    assert (summary.num_repeated, dict(summary.kind)["kind"]) == (10_000 - num_said, "and others")
    assert folding.take(kind("another event"), 1.0), "which is no reason to be silent of other things"
    late = 2.0 + 3 * FOLD_S
    assert folding.take(kind("request_refused", param="late"), late), "old ones are forgotten"


def test_memory_is_bounded_however_many_events_there_are() -> None:
    folding = Folding()
    num_said = sum(folding.take(kind(f"event {number}"), 1.0) for number in range(5_000))
    assert num_said == MAX_KINDS + 1
    assert len(dict(kind(error="x" * 10_000))["error"]) == MAX_VALUE_CHARS
